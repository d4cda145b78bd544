/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest callchains at the stop, from guest memory. Kernel: by ORC where the
 * kernel has it, else by frame pointers. User: by frame pointers.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_H
#define KVMSCOPE_GUEST_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/registers.h"
#include "vmm/guest/view.h"

struct guest_unwinder; /* immutable once made; any number of threads */

struct guest_callchain {
	uint64_t *addresses; /* the caller's, CAPACITY long */
	uint16_t capacity;
	uint16_t kernel_depth;
	uint16_t user_depth;
	uint8_t flags; /* enum sample_flags: what was truncated */
};

/*
 * Walks the stack of a stopped vCPU: the RIP first, then return addresses,
 * across exception and interrupt frames into user space. UNWINDER may be
 * NULL: frame pointers only. Bounded by CAPACITY and by a step limit; reads
 * only present guest pages. On the vCPU thread: no lock, allocation or
 * system call.
 */
void guest_unwind(const struct guest_unwinder *unwinder, const struct guest_view *view,
		  const struct guest_registers *registers, struct guest_callchain *chain);

#endif
