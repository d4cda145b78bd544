/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the control sockets of the runs going on are, and which run has which.
 * They lie in $XDG_RUNTIME_DIR/kvmscope, or /run/kvmscope without that
 * variable, as NAME.sock; a run without a name of its own has its pid for one.
 * Any thread.
 */
#ifndef KVMSCOPE_CONTROL_RUN_DIRECTORY_H
#define KVMSCOPE_CONTROL_RUN_DIRECTORY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CONTROL_NAME_MAX 32

/*
 * A name is a file's name, and nothing that could be taken for a pid: letters,
 * digits, '.', '_', '-', up to CONTROL_NAME_MAX; it starts with a letter.
 */
bool control_name_is_good(const char *name);

/* A run's own socket. */
struct control_socket {
	int fd;              /* listening; -1 without one */
	char path[PATH_MAX]; /* absolute */
};

/*
 * Listens in the runtime directory, which is made where it is not there; NAME
 * as above, NULL for the pid. Sockets that dead runs left there are removed.
 * -EADDRINUSE where a run of that name is going on, -EPERM for a directory
 * that others can write to, the errors of mkdir(2), open(2) and bind(2).
 */
int control_socket_open(struct control_socket *socket, const char *name);

/* Listens at PATH. */
int control_socket_open_at(struct control_socket *socket, const char *path);

/* Removes it. A no-op without one. */
void control_socket_close(struct control_socket *socket);

/* A run that answers. */
struct control_run {
	char name[NAME_MAX + 1]; /* of its socket, without ".sock" */
	char path[PATH_MAX];
	pid_t pid; /* 0: of a PID namespace that we do not see */
	int fd;    /* connected; owned by the list */
};

/* The runs that we may connect to, to be freed by control_runs_free(). -ENOMEM. */
int control_runs_list(struct control_run **runs, size_t *count);
/* NULL, of none, is a no-op. */
void control_runs_free(struct control_run *runs, size_t count);

/*
 * Connects to one run: of process PID unless 0, named NAME unless NULL, or
 * else the only one there is. A descriptor, which the caller closes; -ENOENT
 * without such a run, -ENOTUNIQ where it could be several.
 */
int control_runs_connect(pid_t pid, const char *name);

#endif
