/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a byte for the length of functions, then the code of a kernel. */
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/rdpmc_sites.h"

#define TEXT     0xffffffff81000000ull
#define TEXT_GPA 0x200000ull
#define TABLES   0x1000ull
#define MEMORY   0x600000u

#define PRESENT 3ull
#define LARGE   0x80ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t memory[MEMORY];

static void write_entry(uint64_t table, uint64_t index, uint64_t entry)
{
	memcpy(memory + table + index * 8, &entry, sizeof(entry));
}

/* Two large pages at TEXT. */
static void make_tables(void)
{
	write_entry(TABLES, 511, (TABLES + 0x1000) | PRESENT);
	write_entry(TABLES + 0x1000, 510, (TABLES + 0x2000) | PRESENT);
	write_entry(TABLES + 0x2000, 8, TEXT_GPA | PRESENT | LARGE);
	write_entry(TABLES + 0x2000, 9, (TEXT_GPA + 0x200000) | PRESENT | LARGE);
}

static struct symbols *make_symbols(size_t size, size_t length)
{
	struct symbols *symbols = symbols_new();

	for (size_t at = 0; symbols && at < size; at += length)
		symbols_add(symbols, TEXT + at, 0, 't', "function", NULL);
	if (!symbols)
		abort();
	symbols_finish(symbols);
	return symbols;
}

static void check_site(const struct rdpmc_site *site, size_t size)
{
	uint64_t offset = site->address - TEXT;

	if (offset + site->length > size || memory[TEXT_GPA + offset] != site->first ||
	    memcmp(memory + TEXT_GPA + offset + site->length - 2, "\x0f\x33", 2) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .size = MEMORY, .hva = memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct guest_kernel kernel = { .text_start = TEXT,
				       .paging = { 0x80000001, TABLES, 0x20, EFER_LMA } };
	struct rdpmc_sites sites;

	if (size < 2 || size > 0x400000)
		return 0;
	make_tables();
	memcpy(memory + TEXT_GPA, data + 1, size - 1);
	kernel.text_end = TEXT + size - 1;
	kernel.symbols = make_symbols(size - 1, data[0] * 4u + 1);
	rdpmc_sites_find(&sites, &view, &kernel);
	for (size_t i = 0; i < sites.count; i++)
		check_site(&sites.sites[i], size - 1);
	symbols_free(kernel.symbols);
	return 0;
}
