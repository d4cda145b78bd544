/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the page tables of a Linux kernel in guest memory without vCPU registers, for backends
 * without CR3.
 *
 * The search is for a page whose last entries lead to an image in the last 2 GiB of the address
 * space, mapped by large pages of contiguous physical memory, and to the CPU entry area (kernel:
 * Documentation/arch/x86/x86_64/mm.rst). The top tables of all processes have both. It is only a
 * candidate: guest_kernel_find() checks whether there is a kernel, and the IDT in the CPU entry
 * area whether it is the one that runs.
 */
#ifndef KVMSCOPE_ATTACH_KERNEL_TABLES_H
#define KVMSCOPE_ATTACH_KERNEL_TABLES_H

#include <stddef.h>

#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/guest_registers.h"

/* Linux's IDT since 4.17: the start of the CPU entry area
 * (arch/x86/include/asm/cpu_entry_area.h). */
#define LINUX_IDT_GVA   0xfffffe0000000000ull
#define LINUX_IDT_LIMIT 0xfff

/* Start of kernel images and modules, which extend to the end of the address space. */
#define LINUX_IMAGES_GVA 0xffffffff80000000ull

/*
 * Finds the tables of a kernel in MEMORY, after skipping SKIP candidates. RIP is an address at
 * which the wanted kernel has just run, 0: unknown; after a reset, the tables of the previous
 * kernel are still there, mostly at another address (KASLR). -ENOENT: none. May read all memory in
 * use, which takes some tenths of a second per GiB. One thread at a time.
 */
int kernel_tables_find(struct vmm_memory *memory, size_t skip, uint64_t rip,
		       struct guest_paging *paging);

/* Fills in the registers that finding and checking a kernel needs, with PAGING. */
void kernel_tables_registers(const struct guest_paging *paging, struct guest_registers *registers);

#endif
