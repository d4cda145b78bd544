/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pair of libvirtd and kvmscoped: kvmscoped searches for domains in that libvirtd's state
 * directory, and its run directory is /run/kvmscope for libvirtd and its hooks. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_LIBVIRT_HOST_H
#define KVMSCOPE_TESTS_KVM_LIBVIRT_HOST_H

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/libvirt_daemon.h"

struct libvirt_host {
	struct libvirt_daemon libvirt;
	struct daemon_run daemon;
};

/* Creates the directories, and kvmscope.conf of CONF. Starts neither daemon. */
void libvirt_host_prepare(struct libvirt_host *host, const char *conf);

/* Installs the hook. Call it before libvirtd starts, which searches for hooks at startup. */
void libvirt_host_install_hook(const struct libvirt_host *host);

/*
 * After all domains whose names begin with NAMES and kvmscoped have ended: the check fails if any
 * of their sockets, waiting messages or files remain, except files that are meant to stay.
 */
void libvirt_host_check_nothing_is_left(const struct libvirt_host *host, const char *names);

/*
 * Runs LINE with bash as a user of that host would: in the namespace of its libvirtd and in
 * daemon.directory, whose bin is in PATH together with the folder of the programs of this build.
 * Returns the exit status; TEXT gets the output, truncated to SIZE bytes.
 */
int libvirt_host_type(const struct libvirt_host *host, const char *line, char *text, size_t size);

/* Ends both daemons, started or not, and all domains, and removes the directories. */
void libvirt_host_end(struct libvirt_host *host);

/* True if PID is alive and belongs to domain NAME. */
bool libvirt_host_runs(const struct libvirt_host *host, const char *name, pid_t pid);

#endif
