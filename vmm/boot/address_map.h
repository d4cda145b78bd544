/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loaders write besides the kernel is one block: offsets from its start, struct loader's
 * `low`. x86 kernels reuse it after reading their boot information. It is in the RAM below the
 * EBDA, at LOW_DEFAULT if the kernel leaves that free. Page 0 stays free for guests that start
 * their other CPUs there, and has the BIOS data area. ACPI tables are elsewhere (acpi.h).
 */
#ifndef KVMSCOPE_BOOT_ADDRESS_MAP_H
#define KVMSCOPE_BOOT_ADDRESS_MAP_H

#define LOW_DEFAULT           0x5000ull
#define LOW_GDT               0x0ull
#define LOW_INFO              0x1000ull /* hvm_start_info or multiboot information, one page */
#define LOW_ZERO_PAGE         0x2000ull
#define LOW_SETUP_DATA        0x3000ull
#define LOW_PAGE_TABLES       0x4000ull  /* six pages */
#define LOW_STACK_TOP         0x1b000ull /* grows down to the end of the page tables */
#define LOW_COMMAND_LINE      0x1b000ull
#define LOW_COMMAND_LINE_SIZE 0x10000ull /* including its NUL */
#define LOW_SIZE              0x2b000ull

/* Where a kernel may be below 1 MiB: up to the EBDA. */
#define LAYOUT_LOW_START 0x1000ull

/* The PC's memory map below 1 MiB. Kernels that look for room below the EBDA, such as Xen for its
 * trampoline, read two words of the BIOS data area: the EBDA's segment, and the KiB of RAM. */
#define LAYOUT_BDA_EBDA    0x40eull
#define LAYOUT_BDA_MEMORY  0x413ull
#define LAYOUT_EBDA        0x9fc00ull
#define LAYOUT_VGA         0xa0000ull
#define LAYOUT_HIGH_MEMORY 0x100000ull

/* The page tables map [0, LAYOUT_MAPPED) one to one in 2 MiB pages, which every CPU has. */
#define LAYOUT_MAPPED 0x100000000ull

#endif
