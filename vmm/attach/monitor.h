/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor of a QEMU, through a socket of its own or through libvirt. One thread at a time.
 * Commands wait for their answers; with libvirt without a limit. */
#ifndef KVMSCOPE_ATTACH_MONITOR_H
#define KVMSCOPE_ATTACH_MONITOR_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"

/* Where a monitor is. The caller owns the strings. */
struct monitor_address {
	const char *socket; /* for QMP; NULL: not given */
	const char *domain; /* of libvirt; NULL: not given */
	const char *uri;    /* of libvirt; NULL: the default */
};

struct monitor;

/*
 * Connects. If ADDRESS is empty, uses a socket in the command line of PROCESS. CANCEL_FD: as in
 * qmp_open(). -ENOENT: no monitor is known; -EPERM: the socket is of another process; also the
 * errors of qmp_open() and domain_open().
 */
int monitor_open(struct monitor **monitor, const struct monitor_address *address,
		 const struct vmm_process *process, int cancel_fd);

/* True if ADDRESS or the command line of process PID names a monitor. */
bool monitor_is_known(const struct monitor_address *address, pid_t pid);

/* Size of a path below /proc/PID from QEMU's command line, with the NUL. */
#define MONITOR_SOCKET_PATH (QEMU_OPTION_MAX + 64)

/* Stores the PATH, of MONITOR_SOCKET_PATH bytes, that monitor_open() connects to without a
 * domain. -ENOENT: no monitor is known; -ENAMETOOLONG. */
int monitor_socket(const struct monitor_address *address, const struct vmm_process *process,
		   char *path);

/* As qmp_execute(). */
int monitor_execute(struct monitor *monitor, const char *command, json_t *arguments,
		    json_t **result);

/* Executes a command of the human monitor; RESULT is a string. */
int monitor_execute_hmp(struct monitor *monitor, const char *line, json_t **result);

/* NULL is allowed. */
void monitor_close(struct monitor *monitor);

/* The process of ADDRESS's domain, or the one that listens at its socket. -ENOENT: none that is
 * visible here; also the errors of domain_open(), domain_find_process() and qmp_open(). */
int monitor_find_process(const struct monitor_address *address, pid_t *pid);

/*
 * Tests whether QEMU's monitor works here. Other QEMUs serve one client each, so this starts a QEMU
 * without KVM whose guest does not run, requests from its monitor what an attachment needs (vCPUs,
 * memory, registers), and ends it; takes at most 20 s. -ENOENT: no QEMU is installed;
 * -ECHILD: it exited at once; -EPROTO: incomplete answers; also the errors of qmp_reader_start().
 * Main thread.
 */
int monitor_trial(void);

/*
 * Finds the path of a UNIX socket for QMP in COMMAND_LINE, SIZE bytes of NUL-terminated words: from
 * -qmp, -qmp-pretty, or -mon with mode=control and its -chardev. False: there is none to connect
 * to.
 */
bool monitor_parse_command_line(const char *command_line, size_t size, char *path,
				size_t path_size);

#endif
