/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether decoded symbols are the running kernel's: they must agree with
 * what the CPU itself uses (its IDT) and with the kernel's banner.
 */
#ifndef KVMSCOPE_GUEST_LINUX_KERNEL_CHECK_H
#define KVMSCOPE_GUEST_LINUX_KERNEL_CHECK_H

#include "vmm/guest/linux/guest_kernel.h"

/*
 * Are page faults handled by code that may be a Linux kernel's? As long as they are not no symbols
 * can be confirmed, so none need be looked for. REGISTERS are any vCPU's.
 */
bool kernel_handles_exceptions(const struct guest_view *view,
			       const struct guest_registers *registers);

/*
 * Checks KERNEL's symbols (finished) against guest memory, and fills in
 * text_start, text_end, version_banner and release. 0; -EAGAIN if the kernel
 * is only starting, -EINVAL if the symbols are not its own, with the message;
 * -EILSEQ, without one, if they are no kernel's at all.
 * PAGING maps the kernel; REGISTERS are any vCPU's.
 */
int kernel_check(struct guest_kernel *kernel, const struct guest_view *view,
		 const struct guest_paging *paging, const struct guest_registers *registers);

#endif
