/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running domain of libvirt's QEMU driver: its process, and its monitor, to which libvirt passes
 * commands.
 *
 * libvirt's libraries are loaded on first use (dlopen): with their dependencies, some fifty
 * libraries, that takes tens of milliseconds, more than starting a guest. Without them everything
 * but domains works: the package recommends libvirt0, and needs libvirt-dev to build.
 *
 * One thread at a time per domain. Calls wait for libvirtd without a limit: a thread that must not
 * block does not use them.
 */
#ifndef KVMSCOPE_ATTACH_LIBVIRT_DOMAIN_H
#define KVMSCOPE_ATTACH_LIBVIRT_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct domain;

/*
 * Connects to libvirt at URI (NULL: virsh's default, from LIBVIRT_DEFAULT_URI or by user) and looks
 * up the domain NAME. -ENOTSUP: libvirt is not installed; -ENOENT: no such domain; -ESRCH: it is
 * not running; -ECONNREFUSED: cannot connect; the message includes libvirt's own.
 */
int domain_open(struct domain **domain, const char *name, const char *uri);

/* Finds the domain's process: its command line has the name and UUID as libvirt writes them.
 * -ENOENT: no visible process on this machine; -E2BIG: several. */
int domain_find_process(const struct domain *domain, pid_t *pid);

/* Passes on a QMP command; REPLY is the caller's to free(). libvirt marks the domain as tainted
 * (custom-monitor). -EREMOTEIO: libvirt refuses, with its message; -ESRCH: the domain has ended. */
int domain_monitor_command(const struct domain *domain, const char *command, char **reply);

/* Reads SIZE bytes, at most DOMAIN_MEMORY_MAX, of guest memory at GPA. -EREMOTEIO: libvirt
 * refuses. */
#define DOMAIN_MEMORY_MAX 65536u
int domain_read_memory(const struct domain *domain, uint64_t gpa, void *to, size_t size);

/* NULL is allowed. */
void domain_close(struct domain *domain);

/* 0 if libvirt's libraries are installed, else -ENOTSUP. For kvmscope doctor. */
int domain_probe(void);

/* True if COMMAND_LINE, SIZE bytes of NUL-terminated words, is that of domain NAME with UUID. */
bool domain_parse_command_line(const char *command_line, size_t size, const char *name,
			       const char *uuid);

#endif
