/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libvirtd and a kvmscoped of a test's own that belong together: kvmscoped looks for domains
 * where that libvirtd keeps their state, and its run directory is what is /run/kvmscope to libvirtd
 * and its hooks. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_LIBVIRT_HOST_H
#define KVMSCOPE_TESTS_KVM_LIBVIRT_HOST_H

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/libvirt_daemon.h"

struct libvirt_host {
	struct libvirt_daemon libvirt;
	struct daemon_run daemon;
};

/* Makes the directories, and kvmscope.conf of CONF; neither is started. */
void libvirt_host_prepare(struct libvirt_host *host, const char *conf);

/* Puts the hook in place, before libvirtd starts: it looks for hooks then. */
void libvirt_host_install_hook(const struct libvirt_host *host);

/*
 * When domains whose names begin with NAMES have ended, and kvmscoped has: a failed check with what
 * is left of them, sockets, messages that wait, and files but those that are meant to stay.
 */
void libvirt_host_check_nothing_is_left(const struct libvirt_host *host, const char *names);

/*
 * What a user of that host types: LINE by bash, in the namespace of its libvirtd and in
 * daemon.directory, whose bin, and the folder of the programs that were built with these tests, are
 * in PATH. Its exit status, and in TEXT what it wrote, as much as fits into SIZE bytes.
 */
int libvirt_host_type(const struct libvirt_host *host, const char *line, char *text, size_t size);

/* Ends both, started or not, and all domains, and removes the directories. */
void libvirt_host_end(struct libvirt_host *host);

/* Is PID alive, and domain NAME's? */
bool libvirt_host_runs(const struct libvirt_host *host, const char *name, pid_t pid);

#endif
