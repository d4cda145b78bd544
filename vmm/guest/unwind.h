/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest callchains at the stop, from guest memory. Kernel: by ORC where the
 * kernel has it, else by frame pointers. User: by the .eh_frame of the images
 * that are mapped, compiled into tables before (cfi_table.h), else by frame
 * pointers.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_H
#define KVMSCOPE_GUEST_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/registers.h"
#include "vmm/guest/user_map.h"
#include "vmm/guest/view.h"

struct guest_unwinder; /* immutable once made; any number of threads */

struct guest_callchain {
	uint64_t *addresses; /* the caller's, CAPACITY long */
	uint16_t capacity;
	uint16_t kernel_depth;
	uint16_t user_depth;
	uint8_t flags;     /* enum sample_flags: what was truncated */
	uint64_t deadline; /* CLOCK_MONOTONIC_RAW in ns at which the walk ends wherever it is; 0: none */
	/*
	 * Reading it takes system calls: the time is looked at for each frame, and that callers by frame
	 * pointers in user space are behind calls is left to whoever has the chain (user_call.h).
	 */
	bool slow_memory;
	bool unknown_kernel; /* callers in the kernel by frame pointers have to be behind calls */
};

/*
 * Walks the stack of a stopped vCPU: the RIP first, then return addresses,
 * across exception and interrupt frames into user space. UNWINDER may be
 * NULL: frame pointers only. So may MAP, of what is mapped in user space: frame pointers there, as in
 * programs of 32 bits.
 * Bounded by CAPACITY, the deadline and a step limit; reads only present
 * guest pages. On the vCPU thread: no lock, allocation or system call.
 *
 * A frame in user space is left by the table that describes its code, and not
 * at all where that has no rule or what the rule needs can not be read. By the
 * frame pointer only where no table describes the code; what is found by it
 * has to be code behind a call, and if that tells what it calls, of the code that was left. A
 * chain that does not reach the outermost frame is flagged.
 */
void guest_unwind(const struct guest_unwinder *unwinder, const struct guest_view *view,
		  const struct guest_registers *registers, struct user_map *map,
		  struct guest_callchain *chain);

#endif
