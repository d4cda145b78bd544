/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest callchains at the stop, from guest memory. Kernel: by ORC where the
 * kernel has it, else by frame pointers. User: by the .eh_frame of the images
 * that are mapped, compiled into tables before (cfi_table.h), else by frame
 * pointers.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_UNWIND_H
#define KVMSCOPE_GUEST_UNWIND_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_callchain.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/user_map.h"

struct kernel_orc; /* immutable once made; any number of threads */

/*
 * Walks the stack of a stopped vCPU: the RIP first, then return addresses,
 * across exception and interrupt frames into user space. UNWINDER may be
 * NULL: frame pointers only. So may MAP, of what is mapped in user space: frame pointers there, as
 * in programs of 32 bits. Bounded by CAPACITY, the deadline and a step limit; reads only present
 * guest pages. On the vCPU thread: no lock, allocation or system call.
 *
 * A frame in user space is left by the table that describes its code, and not
 * at all where that has no rule or what the rule needs can not be read. By the
 * frame pointer only where no table describes the code; what is found by it
 * has to be code behind a call, and if that tells what it calls, of the code that was left. A
 * chain that does not reach the outermost frame is flagged.
 */
void guest_unwind(const struct kernel_orc *unwinder, const struct guest_view *view,
		  const struct guest_registers *registers, struct user_map *map,
		  struct guest_callchain *chain);

#endif
