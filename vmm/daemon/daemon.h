/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscoped: its parts, the loop that drives them, and its control commands
 * (docs/control-protocol.md). Main thread. */
#ifndef KVMSCOPE_DAEMON_DAEMON_H
#define KVMSCOPE_DAEMON_DAEMON_H

/* Name of its control socket in the run directory, NAME.sock, which kvmscope ctl finds. */
#define DAEMON_NAME "kvmscoped"

struct daemon_options {
	const char *conf;              /* file; NULL: the default one, if it exists */
	const char *run_directory;     /* for sockets and the hook's spool */
	const char *libvirt_directory; /* libvirt_directory.h */
	const char *uri; /* of libvirt, for domains that only its monitors can sample */
};

struct domains;
struct hook_inbox;
struct daemon_control;

/*
 * Listens at DIRECTORY/kvmscoped.sock. All arguments must outlive it. -EADDRINUSE: another daemon
 * listens there; -ENOMEM, the errors of control_socket_open_at() and control_start().
 */
int daemon_control_open(struct daemon_control **control, const char *directory,
			struct domains *domains, const struct hook_inbox *inbox);
/* NULL is a no-op. */
void daemon_control_close(struct daemon_control *control);

/* Runs until SIGTERM or SIGINT. Returns 0, or an error of the start. */
int daemon_run(const struct daemon_options *options);

#endif
