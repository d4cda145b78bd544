// SPDX-License-Identifier: Apache-2.0
#include "vmm/symbols/symbol_ends.h"

#include <errno.h>
#include <stdlib.h>

#include "shared/agent_protocol.h"

struct symbol_place {
	uint64_t start;
	bool sized;
};

int symbol_ends_begin(struct symbol_ends *ends, size_t most, struct span sections)
{
	*ends = (struct symbol_ends){ .sections = sections };
	if (!most)
		return 0;
	ends->places = calloc(most, sizeof(*ends->places));
	return ends->places ? 0 : -ENOMEM;
}

void symbol_ends_add(struct symbol_ends *ends, const Elf64_Sym *symbol)
{
	ends->places[ends->count++] = (struct symbol_place){ symbol->st_value, symbol->st_size };
}

/* Of those at one address, those with a size first. */
static int compare(const void *left, const void *right)
{
	const struct symbol_place *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return b->sized - a->sized;
}

void symbol_ends_finish(struct symbol_ends *ends)
{
	if (ends->count)
		qsort(ends->places, ends->count, sizeof(*ends->places), compare);
}

/* The number of symbols before ADDRESS. */
static size_t lower_bound(const struct symbol_ends *ends, uint64_t address)
{
	size_t low = 0, high = ends->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ends->places[middle].start < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ADDRESS itself: it is in none. */
static uint64_t end_of_section(const struct symbol_ends *ends, uint64_t address)
{
	struct agent_section section;

	for (uint64_t offset = 0; span_copy(ends->sections, offset, &section, sizeof(section));
	     offset += sizeof(section))
		if (address >= section.start && address - section.start < section.size &&
		    section.size <= UINT64_MAX - section.start)
			return section.start + section.size;
	return address;
}

uint64_t symbol_ends_size(const struct symbol_ends *ends, const Elf64_Sym *symbol)
{
	uint64_t start = symbol->st_value, end;
	size_t at;

	if (symbol->st_size)
		return symbol->st_size;
	at = lower_bound(ends, start);
	if (at < ends->count && ends->places[at].start == start && ends->places[at].sized)
		return 0;
	end = end_of_section(ends, start);
	at = start < UINT64_MAX ? lower_bound(ends, start + 1) : ends->count;
	if (at < ends->count && ends->places[at].start < end)
		end = ends->places[at].start;
	return end - start;
}

void symbol_ends_free(struct symbol_ends *ends)
{
	free(ends->places);
	*ends = (struct symbol_ends){ 0 };
}
