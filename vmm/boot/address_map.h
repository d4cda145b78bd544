/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest physical addresses of what the loaders write besides the kernel: RAM below the EBDA, which
 * x86 kernels reuse after reading their boot information. Page 0 stays free for guests that start
 * their other CPUs there. ACPI tables are elsewhere (acpi.h).
 */
#ifndef KVMSCOPE_BOOT_ADDRESS_MAP_H
#define KVMSCOPE_BOOT_ADDRESS_MAP_H

#define LAYOUT_GDT               0x5000ull
#define LAYOUT_INFO              0x6000ull /* hvm_start_info or multiboot information, one page */
#define LAYOUT_ZERO_PAGE         0x7000ull
#define LAYOUT_SETUP_DATA        0x8000ull
#define LAYOUT_PAGE_TABLES       0x9000ull  /* six pages */
#define LAYOUT_STACK_TOP         0x20000ull /* grows down to the end of the page tables */
#define LAYOUT_COMMAND_LINE      0x20000ull
#define LAYOUT_COMMAND_LINE_SIZE 0x10000ull /* including its NUL */

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
