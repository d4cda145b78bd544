/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/e820.h"

#include "vmm/boot/acpi.h"
#include "vmm/boot/address_map.h"

/* What a PC has below 1 MiB; the hole from VGA to the tables is named reserved so that no kernel
 * looks for RAM there. */
static const struct e820_range low_ranges[] = {
	{ 0, LAYOUT_EBDA, E820_RAM },
	{ LAYOUT_EBDA, LAYOUT_VGA - LAYOUT_EBDA, E820_RESERVED },
	{ LAYOUT_VGA, ACPI_START - LAYOUT_VGA, E820_RESERVED },
	{ ACPI_START, ACPI_END - ACPI_START, E820_ACPI },
};

#define LOW_RANGES (sizeof(low_ranges) / sizeof(low_ranges[0]))

size_t e820_build(const struct memory *memory, struct e820_range ranges[E820_RANGES_MAX])
{
	size_t count = 0;

	for (; count < LOW_RANGES; count++)
		ranges[count] = low_ranges[count];
	for (size_t i = 0; i < memory->region_count; i++) {
		uint64_t start = memory->regions[i].gpa;
		uint64_t end = start + memory->regions[i].size;

		if (start < LAYOUT_HIGH_MEMORY)
			start = LAYOUT_HIGH_MEMORY;
		if (start < end)
			ranges[count++] = (struct e820_range){ start, end - start, E820_RAM };
	}
	return count;
}
