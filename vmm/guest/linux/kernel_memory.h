/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of the guest kernel's own memory with a cache of recent translations: its structures are
 * spread over a few large pages of the direct map. One object for each thread and stop. The guest
 * may change anything between two reads.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_MEMORY_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

#define KERNEL_HALF           0xff00000000000000ull /* lowest kernel address, with 5-level paging */
#define KERNEL_MEMORY_WINDOWS 4
#define KERNEL_MEMORY_READS   8 /* between two checks of the deadline */

/* A range of GVAs with a known translation; size 0: none. */
struct kernel_memory_window {
	uint64_t start, size, gpa;
};

struct kernel_memory {
	const struct guest_view *view;
	const struct guest_paging *paging; /* maps the whole kernel */
	uint64_t deadline; /* ns of CLOCK_MONOTONIC_RAW after which reads fail; 0: none */
	unsigned int reads;
	bool timed_out;    /* a read failed because the deadline has passed */
	unsigned int next; /* window to be replaced */
	struct kernel_memory_window windows[KERNEL_MEMORY_WINDOWS];
};

/* All functions: no lock, allocation or system call. */

/* The GPA of GVA. */
bool kernel_memory_translate(struct kernel_memory *memory, uint64_t gva, uint64_t *gpa);

/*
 * Reads SIZE bytes at GVA in the kernel's half. False, with TO undefined: not all of them can be
 * read, or the deadline has passed. The deadline is checked before the first read and after every
 * KERNEL_MEMORY_READS.
 */
bool kernel_memory_read(struct kernel_memory *memory, uint64_t gva, void *to, size_t size);

/* Reads the 8 bytes at GVA. */
static inline bool kernel_memory_read_u64(struct kernel_memory *memory, uint64_t gva,
					  uint64_t *value)
{
	return kernel_memory_read(memory, gva, value, sizeof(*value));
}

#endif
