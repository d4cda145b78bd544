/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscoped: its parts, and the loop that drives them. Main thread. */
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

/* Runs until SIGTERM or SIGINT. Returns 0, or an error of the start. */
int daemon_run(const struct daemon_options *options);

#endif
