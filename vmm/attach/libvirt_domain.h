/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running domain of libvirt's QEMU driver: which process it is, and its monitor, which libvirt
 * keeps to itself but passes commands on to.
 *
 * libvirt's libraries are loaded when a domain is named (dlopen), as programs do for what is
 * optional: with some fifty libraries that they need in turn they take tens of milliseconds, more
 * than kvmscope run takes to start a guest. Without them all but domains works. A package
 * recommends libvirt0, and needs libvirt-dev to build.
 *
 * One thread at a time for each domain. Calls wait for libvirtd, and for as long as it takes:
 * -EBUSY and the like are its business. A thread that must not wait for others calls none of them.
 */
#ifndef KVMSCOPE_ATTACH_LIBVIRT_DOMAIN_H
#define KVMSCOPE_ATTACH_LIBVIRT_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct domain;

/*
 * Connects to libvirt at URI (NULL: as virsh does, by LIBVIRT_DEFAULT_URI or what fits the user)
 * and looks the domain NAME up. -ENOTSUP: libvirt's libraries are not installed; -ENOENT: there is
 * no such domain; -ESRCH: it does not run; -ECONNREFUSED: libvirt can not be connected to; the
 * message has libvirt's own words.
 */
int domain_open(struct domain **domain, const char *name, const char *uri);

/*
 * The process of the domain: the one whose command line has the domain's name and UUID, as libvirt
 * wrote it. -ENOENT: none that is on this machine and that we see; -E2BIG: several say so.
 */
int domain_find_process(const struct domain *domain, pid_t *pid);

/* Passes a QMP command on; REPLY is malloc()ed. libvirt marks the domain as tainted by that
 * (custom-monitor). -EREMOTEIO: libvirt does not, with its words; -ESRCH: the domain does not run
 * any more. */
int domain_monitor_command(const struct domain *domain, const char *command, char **reply);

/* SIZE bytes, at most DOMAIN_MEMORY_MAX, of the guest's memory at GPA. -EREMOTEIO: libvirt does not
 * read them. */
#define DOMAIN_MEMORY_MAX 65536u
int domain_read_memory(const struct domain *domain, uint64_t gpa, void *to, size_t size);

/* Works on NULL. */
void domain_close(struct domain *domain);

/* Can libvirt's libraries be had? For kvmscope doctor. 0 or -ENOTSUP. */
int domain_probe(void);

/*
 * Does COMMAND_LINE of SIZE bytes, words that end with NUL as in /proc/PID/cmdline, belong to
 * domain NAME with UUID?
 */
bool domain_parse_command_line(const char *command_line, size_t size, const char *name,
			       const char *uuid);

#endif
