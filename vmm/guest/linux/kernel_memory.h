/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of the guest kernel's own memory, which keep the last translations: its
 * structures are spread over a few large pages of the direct map. One for each
 * thread and stop; the guest may change anything between two reads.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_MEMORY_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

#define KERNEL_HALF                                                                                \
	0xff00000000000000ull /* the lowest address of the kernel with 5-level paging              \
			       */
#define KERNEL_MEMORY_WINDOWS 4
#define KERNEL_MEMORY_READS   8 /* by one look at the clock */

/* A range of GVAs whose translation is known; size 0: none. */
struct kernel_memory_window {
	uint64_t start, size, gpa;
};

struct kernel_memory {
	const struct guest_view *view;
	const struct guest_paging *paging; /* that maps the whole kernel */
	uint64_t deadline; /* ns of CLOCK_MONOTONIC_RAW behind which nothing is read any more; 0:
			      none */
	unsigned int reads;
	bool timed_out;    /* the deadline passed, and something was not read */
	unsigned int next; /* to be replaced */
	struct kernel_memory_window windows[KERNEL_MEMORY_WINDOWS];
};

/* The GPA of GVA. No lock, allocation or system call, as the others. */
bool kernel_memory_translate(struct kernel_memory *memory, uint64_t gva, uint64_t *gpa);

/*
 * SIZE bytes at GVA in the kernel's half. False: not all of them can be read, or the deadline has
 * passed; TO is undefined. The clock is looked at before the first read and each
 * KERNEL_MEMORY_READS more.
 */
bool kernel_memory_read(struct kernel_memory *memory, uint64_t gva, void *to, size_t size);

/* The 8 bytes at GVA. */
static inline bool kernel_memory_read_u64(struct kernel_memory *memory, uint64_t gva,
					  uint64_t *value)
{
	return kernel_memory_read(memory, gva, value, sizeof(*value));
}

#endif
