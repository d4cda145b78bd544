/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the loaders put what is not the kernel itself: all of it in the RAM
 * below the EBDA, which every x86 kernel takes for scratch once it has read
 * its boot information. Page 0 stays free for guests that start their other
 * CPUs there. ACPI tables have their own place (acpi.h).
 */
#ifndef KVMSCOPE_BOOT_ADDRESS_MAP_H
#define KVMSCOPE_BOOT_ADDRESS_MAP_H

#define LAYOUT_GDT               0x5000ull
#define LAYOUT_INFO              0x6000ull /* hvm_start_info or multiboot information, one page */
#define LAYOUT_ZERO_PAGE         0x7000ull
#define LAYOUT_SETUP_DATA        0x8000ull
#define LAYOUT_PAGE_TABLES       0x9000ull  /* six pages */
#define LAYOUT_STACK_TOP         0x20000ull /* grows down to the page tables' end */
#define LAYOUT_COMMAND_LINE      0x20000ull
#define LAYOUT_COMMAND_LINE_SIZE 0x10000ull /* with its NUL */

/* The PC's memory map below 1 MiB. */
#define LAYOUT_EBDA        0x9fc00ull
#define LAYOUT_VGA         0xa0000ull
#define LAYOUT_HIGH_MEMORY 0x100000ull

#endif
