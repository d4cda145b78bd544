/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The domains that run, as libvirt keeps them for itself: RUNSTATEDIR/libvirt/qemu has NAME.xml,
 * their status, and NAME.pid, NAME as XML has it, which the domain's process holds a lock on for as
 * long as it lives (libvirt: src/util/vircommand.c, virExec(); src/util/virpidfile.c). So they are
 * found also when libvirt does not run, and what a crash left behind is told from what lives. Any
 * thread.
 */
#ifndef KVMSCOPE_DAEMON_LIBVIRT_DIRECTORY_H
#define KVMSCOPE_DAEMON_LIBVIRT_DIRECTORY_H

#include <sys/types.h>

#include "vmm/daemon/domain_xml.h"

#define LIBVIRT_DIRECTORY "/run/libvirt/qemu"

/* A process that a domain has. */
struct libvirt_process {
	pid_t pid;
	int fd; /* pidfd, the caller's */
};

/* The process of domain NAME in DIRECTORY. -ENOENT: it has none (any more), or the name can not be
 * that of a file. Any other error, of open(2), pidfd_open(2) or fcntl(2): whether it has one can
 * not be told now. */
int libvirt_directory_process(const char *directory, const char *name,
			      struct libvirt_process *process);

/* The status of domain NAME. -ENOENT and others as above; the errors of domain_xml_read(), -EINVAL
 * if it is another domain's. */
int libvirt_directory_domain(const char *directory, const char *name, struct domain_xml *domain);

/* EACH gets the name of every domain that has a status, that can be read or not. The errors of
 * opendir(3). */
int libvirt_directory_each(const char *directory, void (*each)(void *context, const char *name),
			   void *context);

#endif
