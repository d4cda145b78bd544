/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of a stopped vCPU, from guest memory. Kernel: by ORC if the kernel has it, else by
 * frame pointers. User space: by the .eh_frame of mapped images, compiled in advance (cfi_table.h),
 * else by frame pointers.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_UNWIND_H
#define KVMSCOPE_GUEST_UNWIND_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_callchain.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/user_map.h"

struct kernel_orc;

/*
 * Walks the stack of a stopped vCPU: RIP first, then return addresses, across exception and
 * interrupt frames into user space. Without ORC (NULL) the kernel is unwound by frame pointers;
 * without MAP (NULL) user space is, as are 32-bit programs. Bounded by CAPACITY and the deadline;
 * reads only present guest pages. On the vCPU thread: no lock, allocation or system call.
 *
 * A user-space frame is unwound by the table that describes its code; if that has no rule, or the
 * rule needs unreadable memory, the walk ends. The frame pointer is used only for code without a
 * table: the caller must then be code after a call, and a direct call must lead to the function
 * that returns there. A chain that does not reach the outermost frame is flagged.
 */
void guest_unwind(const struct kernel_orc *orc, const struct guest_view *view,
		  const struct guest_registers *registers, struct user_map *map,
		  struct guest_callchain *chain);

#endif
