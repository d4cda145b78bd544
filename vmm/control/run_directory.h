/* SPDX-License-Identifier: Apache-2.0 */
/* The control sockets of running sessions, in $XDG_RUNTIME_DIR/kvmscope, or without that variable
 * in /run/kvmscope, as NAME.sock. A run without a name uses its pid. Any thread. */
#ifndef KVMSCOPE_CONTROL_RUN_DIRECTORY_H
#define KVMSCOPE_CONTROL_RUN_DIRECTORY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CONTROL_NAME_MAX 32

/* True for a valid name, which cannot be mistaken for a pid: up to CONTROL_NAME_MAX letters,
 * digits, '.', '_' and '-', a letter first. */
bool control_name_is_good(const char *name);

/* The path of the runtime directory. -ENAMETOOLONG. */
int control_directory(char *path, size_t size);

/* The socket of this run. */
struct control_socket {
	int fd;              /* listening; -1: none */
	char path[PATH_MAX]; /* absolute */
};

/*
 * Listens in the runtime directory, which is created if it is missing, as NAME (NULL: the pid).
 * Removes the sockets of dead runs there. -EADDRINUSE: a run has that name; -EPERM: another user
 * can write to the directory; the errors of mkdir(2), open(2) and bind(2).
 */
int control_socket_open(struct control_socket *socket, const char *name);

/* Listens at PATH. */
int control_socket_open_at(struct control_socket *socket, const char *path);

/* Removes the socket. A no-op without one. */
void control_socket_close(struct control_socket *socket);

/* A run that accepts connections. */
struct control_run {
	char name[NAME_MAX + 1]; /* of its socket, without ".sock" */
	char path[PATH_MAX];
	pid_t pid; /* 0: in a PID namespace that we cannot see */
	int fd;    /* connected; owned by the list */
};

/* The runs that we may connect to; free them by control_runs_free(). -ENOMEM. */
int control_runs_list(struct control_run **runs, size_t *count);
/* NULL is a no-op. */
void control_runs_free(struct control_run *runs, size_t count);

/*
 * Connects to the run of process PID unless 0, named NAME unless NULL, else to the only one.
 * Returns a descriptor, which the caller closes; -ENOENT: there is no such run; -ENOTUNIQ: there
 * are several.
 */
int control_runs_connect(pid_t pid, const char *name);

#endif
