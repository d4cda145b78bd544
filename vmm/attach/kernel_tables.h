/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page tables of a Linux kernel, found in guest memory without any
 * register of a vCPU: some ways to sample tell no CR3.
 *
 * What is looked for is a page whose last entries lead to an image in the
 * last 2 GiB of the address space, mapped by large pages that lie in a row in
 * physical memory, and to the CPU entry area (kernel: Documentation/arch/x86/x86_64/mm.rst).
 * Every process's top table has them, too. It is only a candidate: guest_kernel_find() tells
 * whether there is a kernel behind it, and the IDT in the CPU entry area, whether it is the one
 * that runs.
 */
#ifndef KVMSCOPE_ATTACH_KERNEL_TABLES_H
#define KVMSCOPE_ATTACH_KERNEL_TABLES_H

#include <stddef.h>

#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/guest_registers.h"

/* Where Linux has its IDT, from 4.17 on: the start of the CPU entry area
 * (arch/x86/include/asm/cpu_entry_area.h). */
#define LINUX_IDT_GVA   0xfffffe0000000000ull
#define LINUX_IDT_LIMIT 0xfff

/* Where kernel images and modules are, to the end of the address space. */
#define LINUX_IMAGES_GVA 0xffffffff80000000ull

/*
 * Of the kernels that there are tables of in MEMORY, the one behind the first SKIP. RIP is an
 * address where the kernel that is wanted ran just now, 0: not known; a machine that was reset has
 * the tables of the one before it, too, which mostly lies elsewhere (KASLR). -ENOENT: there is
 * none. Reads all memory that is in use if it has to, some tenths of a second for each GiB. One
 * thread at a time.
 */
int kernel_tables_find(struct vmm_memory *memory, size_t skip, uint64_t rip,
		       struct guest_paging *paging);

/* What a vCPU's registers would be as far as finding and checking a kernel needs them, with PAGING.
 */
void kernel_tables_registers(const struct guest_paging *paging, struct guest_registers *registers);

#endif
