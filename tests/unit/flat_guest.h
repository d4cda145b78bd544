/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest made by hand: flat memory from GPA 0, four-level page tables that grow down from its top,
 * and registers in long mode. For tests.
 */
#ifndef KVMSCOPE_TESTS_UNIT_FLAT_GUEST_H
#define KVMSCOPE_TESTS_UNIT_FLAT_GUEST_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

struct flat_guest {
	uint8_t *memory; /* owned */
	size_t size;
	uint64_t tables_end; /* page tables lie in [tables_end, size) */
	struct guest_region region;
	struct guest_view view;
	struct guest_registers registers;
};

/* Creates SIZE bytes of zeroed memory and an empty top table in CR3. Aborts without memory. */
void flat_guest_create(struct flat_guest *guest, size_t size);
void flat_guest_destroy(struct flat_guest *guest);

/* Removes all mappings: CR3 has the only table, which is empty. */
void flat_guest_unmap_all(struct flat_guest *guest);

/* Returns the GPA of a zeroed page for a table. Aborts when there is none. */
uint64_t flat_guest_table(struct flat_guest *guest);

/*
 * Maps the page of PAGE_SIZE (4 KiB, 2 MiB or 1 GiB) at GVA to GPA under CR3, with FLAGS in
 * addition to present.
 */
void flat_guest_map(struct flat_guest *guest, uint64_t cr3, uint64_t gva, uint64_t gpa,
		    uint64_t page_size, uint64_t flags);

void flat_guest_write_u64(struct flat_guest *guest, uint64_t gpa, uint64_t value);

#endif
