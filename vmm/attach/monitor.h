/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor of a QEMU, by whichever way there is: a socket of its own, or libvirt. One thread at
 * a time; commands wait for their answers, by libvirt for as long as QEMU takes.
 */
#ifndef KVMSCOPE_ATTACH_MONITOR_H
#define KVMSCOPE_ATTACH_MONITOR_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"

/* Where a monitor is. Strings are the caller's. */
struct monitor_address {
	const char *socket; /* of QMP; NULL: none was given */
	const char *domain; /* of libvirt; NULL: none was given */
	const char *uri;    /* of libvirt; NULL: the usual one */
};

struct monitor;

/*
 * Connects. Where ADDRESS names nothing, PROCESS's own command line is asked for a socket.
 * CANCEL_FD: as in qmp_open(). -ENOENT: no way is known; -EPERM: the socket is that of another
 * process; else the errors of qmp_open() and domain_open().
 */
int monitor_open(struct monitor **monitor, const struct monitor_address *address,
		 const struct vmm_process *process, int cancel_fd);

/* Is there a way to a monitor of process PID: in ADDRESS, or a socket in its command line? */
bool monitor_is_known(const struct monitor_address *address, pid_t pid);

/* With the NUL: a path of QEMU's command line, below /proc/PID. */
#define MONITOR_SOCKET_PATH (QEMU_OPTION_MAX + 64)

/*
 * The PATH, of MONITOR_SOCKET_PATH bytes, of the socket that monitor_open() connects to where no
 * domain is named. -ENOENT: no way is known; -ENAMETOOLONG.
 */
int monitor_socket(const struct monitor_address *address, const struct vmm_process *process,
		   char *path);

/* As qmp_execute(). */
int monitor_execute(struct monitor *monitor, const char *command, json_t *arguments,
		    json_t **result);

/* A line of the monitor for humans; RESULT is a string. */
int monitor_execute_hmp(struct monitor *monitor, const char *line, json_t **result);

/* Works on NULL. */
void monitor_close(struct monitor *monitor);

/* The process that listens at the QMP socket PATH. -ENOENT: none that is seen here; the errors of
 * qmp_open().
 */
int monitor_find_process(const char *path, pid_t *pid);

/*
 * The path of a UNIX socket with QMP in COMMAND_LINE of SIZE bytes, words that end with NUL: of
 * -qmp, -qmp-pretty, or of -mon with mode=control and its -chardev. False: there is none that can
 * be connected to.
 */
bool monitor_parse_command_line(const char *command_line, size_t size, char *path,
				size_t path_size);

#endif
