/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running domains in libvirt's state directory, RUNSTATEDIR/libvirt/qemu: NAME.xml is the status,
 * and NAME.pid (escaped as in XML) is locked by the domain's process while it runs (libvirt:
 * src/util/vircommand.c, virExec(); src/util/virpidfile.c). So domains are found also while
 * libvirt does not run, and files that a crash left are detected. Any thread.
 */
#ifndef KVMSCOPE_DAEMON_LIBVIRT_DIRECTORY_H
#define KVMSCOPE_DAEMON_LIBVIRT_DIRECTORY_H

#include <sys/types.h>

#include "vmm/daemon/domain_xml.h"

#define LIBVIRT_DIRECTORY "/run/libvirt/qemu"

/* The process of a domain. */
struct libvirt_process {
	pid_t pid;
	int fd; /* pidfd, owned by the caller */
};

/*
 * Finds the process of domain NAME in DIRECTORY. -ENOENT: it has none, or the name cannot be a
 * file's. Other errors, of open(2), pidfd_open(2) or fcntl(2): it is unknown whether it has one.
 */
int libvirt_directory_process(const char *directory, const char *name,
			      struct libvirt_process *process);

/* Reads the status of domain NAME. -ENOENT and others as above; the errors of domain_xml_read(),
 * -EINVAL if it is another domain's. */
int libvirt_directory_domain(const char *directory, const char *name, struct domain_xml *domain);

/* Calls EACH for every domain with a status, readable or not. The errors of opendir(3). */
int libvirt_directory_each(const char *directory, void (*each)(void *context, const char *name),
			   void *context);

#endif
