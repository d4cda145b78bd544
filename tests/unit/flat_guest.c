/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/flat_guest.h"

#include <stdlib.h>
#include <string.h>

#define PAGE             4096ull
#define PRESENT_WRITABLE 3ull
#define LARGE            (1ull << 7)

void flat_guest_create(struct flat_guest *guest, size_t size)
{
	memset(guest, 0, sizeof(*guest));
	guest->memory = calloc(1, size);
	if (!guest->memory)
		abort();
	guest->size = size;
	guest->tables_end = size & ~(PAGE - 1);
	guest->region = (struct guest_region){ .gpa = 0, .size = size, .hva = guest->memory };
	guest->view = (struct guest_view){ .regions = &guest->region, .region_count = 1 };
	guest->registers.paging = (struct guest_paging){ .cr0 = 1ull << 31 | 1,
							 .cr3 = flat_guest_table(guest),
							 .cr4 = 1 << 5,
							 .efer = 1 << 10 | 1 << 8 };
	guest->registers.long_mode = true;
}

void flat_guest_destroy(struct flat_guest *guest)
{
	free(guest->memory);
}

void flat_guest_unmap_all(struct flat_guest *guest)
{
	uint64_t end = guest->size & ~(PAGE - 1);

	memset(guest->memory + guest->tables_end, 0, end - guest->tables_end);
	guest->tables_end = end;
	guest->registers.paging.cr3 = flat_guest_table(guest);
}

uint64_t flat_guest_table(struct flat_guest *guest)
{
	if (guest->tables_end < PAGE)
		abort();
	guest->tables_end -= PAGE;
	return guest->tables_end;
}

static uint64_t *entry_of(struct flat_guest *guest, uint64_t table, uint64_t gva,
			  unsigned int shift)
{
	return (uint64_t *)(void *)(guest->memory + table) + (gva >> shift & 511);
}

void flat_guest_map(struct flat_guest *guest, uint64_t cr3, uint64_t gva, uint64_t gpa,
		    uint64_t page_size, uint64_t flags)
{
	uint64_t table = cr3 & ~(PAGE - 1);

	for (unsigned int shift = 39;; shift -= 9) {
		uint64_t *entry = entry_of(guest, table, gva, shift);

		if (1ull << shift == page_size) {
			*entry = gpa | flags | 1 | (shift > 12 ? LARGE : 0);
			return;
		}
		if (!*entry)
			*entry = flat_guest_table(guest) | PRESENT_WRITABLE;
		table = *entry & 0x000ffffffffff000ull;
	}
}

void flat_guest_write_u64(struct flat_guest *guest, uint64_t gpa, uint64_t value)
{
	memcpy(guest->memory + gpa, &value, sizeof(value));
}
