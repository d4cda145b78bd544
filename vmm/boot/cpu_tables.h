/* SPDX-License-Identifier: Apache-2.0 */
/* The first vCPU's GDT and, for 64-bit entries, its page tables. */
#ifndef KVMSCOPE_BOOT_CPU_TABLES_H
#define KVMSCOPE_BOOT_CPU_TABLES_H

#include "vmm/boot/kernel_boot.h"

/* The page tables map so much, one to one, in pages of 2 MiB: what the 64-bit protocol wants and
 * every CPU has. */
#define CPU_TABLES_MAPPED 0x100000000ull

/*
 * Writes the GDT for START's mode and, if that is long mode, the page tables;
 * fills start->gdt, gdt_size, cr3 and rsp. -EFAULT if low RAM is missing.
 */
int cpu_tables_write(const struct memory *memory, struct boot_start *start);

#endif
