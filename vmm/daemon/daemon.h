/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscoped: all that it has, and the loop that drives it. Main thread. */
#ifndef KVMSCOPE_DAEMON_DAEMON_H
#define KVMSCOPE_DAEMON_DAEMON_H

/* Its control socket in the run directory: NAME.sock, as kvmscope ctl looks for runs. */
#define DAEMON_NAME "kvmscoped"

struct daemon_options {
	const char *conf;              /* file; NULL: the usual one, if there is one */
	const char *run_directory;     /* sockets and the hook's spool */
	const char *libvirt_directory; /* libvirt_directory.h */
	const char *uri; /* libvirt's, for domains that only its monitors can tell of */
};

/* Until SIGTERM or SIGINT: 0. An error is one of the start. */
int daemon_run(const struct daemon_options *options);

#endif
