/* SPDX-License-Identifier: Apache-2.0 */
/* The memory map that every boot protocol tells in its own form. ACPI 6.4, 15.1, table 15.4. */
#ifndef KVMSCOPE_BOOT_E820_H
#define KVMSCOPE_BOOT_E820_H

#include "vmm/kvm/guest_ram.h"

enum e820_type {
	E820_RAM = 1,
	E820_RESERVED = 2,
	E820_ACPI = 3,
};

struct e820_range {
	uint64_t start; /* GPA */
	uint64_t size;
	enum e820_type type;
};

/* Four ranges below 1 MiB and one for each region. */
#define E820_RANGES_MAX (4 + MEMORY_REGIONS_MAX)

/* Describes MEMORY, sorted and without overlaps; returns the number of ranges. */
size_t e820_build(const struct memory *memory, struct e820_range ranges[E820_RANGES_MAX]);

#endif
