/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest memory of a domain whose process may not be looked at: libvirt's API reads it for
 * whoever may talk to libvirt (virDomainMemoryPeek(), by QEMU's pmemsave), some 100 times slower.
 * So it is fetched by blocks, which are kept for a moment. Any thread; calls wait for libvirtd.
 */
#ifndef KVMSCOPE_ATTACH_REMOTE_MEMORY_H
#define KVMSCOPE_ATTACH_REMOTE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct remote_memory;

/* Of the domain NAME of the libvirt at URI. The errors of domain_open(), -ENOMEM. */
int remote_memory_open(struct remote_memory **memory, const char *name, const char *uri);

/* SIZE bytes of RAM at GPA, as they were a quarter of a second ago at most. 0 or -EFAULT. */
int remote_memory_read(struct remote_memory *memory, uint64_t gpa, void *to, size_t size);

/* Works on NULL. */
void remote_memory_close(struct remote_memory *memory);

#endif
