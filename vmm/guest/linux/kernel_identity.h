/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a kernel that was found is the one that runs. A kexec, or a reset of
 * the machine, puts another kernel in its place without telling anybody; what
 * is known of the old one would then give wrong names. Its memory may stand
 * there unharmed for long, so what counts is what the processor's own page tables map.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_IDENTITY_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"

/* Fills in kernel->identity of a kernel whose symbols, banner and page tables are known. -EAGAIN:
 * it is not mapped. */
int guest_kernel_identify(struct guest_kernel *kernel, const struct guest_view *view);

/*
 * Does the vCPU with REGISTERS run KERNEL? True if its page tables map the
 * banner where KERNEL has it, and it is still the same one: another kernel would have to be of the
 * same build, at the same place of both physical and virtual memory, and then has the
 * same symbols. No lock, no allocation, no system call: some ten memory accesses, on any thread.
 */
bool guest_kernel_is_running(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct guest_registers *registers);

/*
 * Its time since it started, in ticks of a length of its own (kernel:
 * jiffies_64). Goes back only if the kernel was started anew in the same
 * place. False if it is not known.
 */
bool guest_kernel_ticks(const struct guest_kernel *kernel, const struct guest_view *view,
			uint64_t *ticks);

/* Can it be told at all? A vCPU that is not in 64-bit mode is only starting, and runs no Linux
 * kernel (yet).
 */
bool guest_kernel_can_run(const struct guest_registers *registers);

/* Are both the same build at the same place? */
bool guest_kernels_equal(const struct guest_kernel *one, const struct guest_kernel *other);

#endif
