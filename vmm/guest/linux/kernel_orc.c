/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_orc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define COUNT_MAX (8u << 20)

/* Guest memory [gva, gva + size) in this process; NULL unless it is contiguous guest RAM. */
static const uint8_t *pointer_to(const struct guest_view *view, const struct guest_paging *paging,
				 uint64_t gva, uint64_t size)
{
	struct guest_translation first, page;

	if (guest_translate(view, paging, gva, &first))
		return NULL;
	for (uint64_t at = (gva | 4095) + 1; at < gva + size; at += 4096)
		if (guest_translate(view, paging, at, &page) || page.gpa - first.gpa != at - gva)
			return NULL;
	return guest_physical_pointer(view, first.gpa, size);
}

/* Copies both parts of TABLE into one block. */
static int copy_table(struct kernel_orc *orc, const struct guest_view *view, uint64_t entries,
		      struct orc_table *table)
{
	size_t ips_size = table->count * 4ul,
	       size = ips_size + (size_t)table->count * ORC_ENTRY_SIZE;
	uint8_t *copy = malloc(size);

	if (!copy)
		return -ENOMEM;
	if (guest_read_virtual(view, &orc->paging, table->ips_gva, copy, ips_size) ||
	    guest_read_virtual(view, &orc->paging, entries, copy + ips_size, size - ips_size)) {
		free(copy);
		return -EFAULT;
	}
	table->ips = copy;
	table->entries = copy + ips_size;
	orc->copies[orc->copy_count++] = copy;
	return 0;
}

/* The kernel's own tables never move: they are read in place where possible. */
static int open_kernel_table(struct kernel_orc *orc, const struct guest_view *view,
			     uint64_t entries)
{
	struct orc_table *table = &orc->tables[0];
	int error = 0;

	table->ips = pointer_to(view, &orc->paging, table->ips_gva, table->count * 4ull);
	table->entries =
		pointer_to(view, &orc->paging, entries, (uint64_t)table->count * ORC_ENTRY_SIZE);
	if (!table->ips || !table->entries)
		error = copy_table(orc, view, entries, table);
	if (error)
		return error;
	table->start = orc_address(table, 0);
	table->end = orc_address(table, table->count - 1);
	orc->table_count = 1;
	return 0;
}

/* The linker script's symbols: __start_orc_unwind_ip and __start_orc_unwind, each with a stop. */
static int find_kernel_table(const struct symbols *symbols, struct orc_table *table,
			     uint64_t *entries)
{
	struct symbol ips, ips_end, first, end;

	if (!symbols_find_name(symbols, "__start_orc_unwind_ip", &ips) ||
	    !symbols_find_name(symbols, "__stop_orc_unwind_ip", &ips_end) ||
	    !symbols_find_name(symbols, "__start_orc_unwind", &first) ||
	    !symbols_find_name(symbols, "__stop_orc_unwind", &end))
		return -ENOENT;
	table->ips_gva = ips.start;
	table->count = (uint32_t)((ips_end.start - ips.start) / 4);
	*entries = first.start;
	if (ips_end.start - ips.start > COUNT_MAX * 4ull || !table->count ||
	    end.start - first.start != (uint64_t)table->count * ORC_ENTRY_SIZE)
		return -ENOENT;
	return 0;
}

static int compare_tables(const void *left, const void *right)
{
	const struct orc_table *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

/*
 * Copies the tables of modules, which can be unloaded and their memory reused at any time.
 * Unreadable ones are left out.
 */
static int add_modules(struct kernel_orc *orc, const struct guest_view *view,
		       const struct module_list *modules)
{
	for (size_t i = 0; i < modules->count; i++) {
		const struct module_orc *source = &modules->orcs[i];
		struct orc_table *table = &orc->tables[orc->table_count];
		int error;

		if (!source->count)
			continue;
		*table = (struct orc_table){ .start = modules->modules[i].start,
					     .end = modules->modules[i].start +
						    modules->modules[i].size,
					     .ips_gva = source->ips,
					     .count = source->count };
		error = copy_table(orc, view, source->entries, table);
		if (error == -ENOMEM)
			return error;
		if (!error)
			orc->table_count++;
	}
	qsort(orc->tables + 1, orc->table_count - 1, sizeof(struct orc_table), compare_tables);
	return 0;
}

static int fill(struct kernel_orc *orc, const struct guest_view *view,
		const struct symbols *symbols, const struct module_list *modules)
{
	uint64_t entries;
	int error;

	orc->tables = calloc(modules->count + 1, sizeof(*orc->tables));
	orc->copies = calloc(modules->count + 1, sizeof(*orc->copies));
	if (!orc->tables || !orc->copies)
		return -ENOMEM;
	error = find_kernel_table(symbols, &orc->tables[0], &entries);
	if (!error)
		error = open_kernel_table(orc, view, entries);
	if (error)
		return error;
	orc->format = orc_detect_format(&orc->tables[0]);
	return orc->format == ORC_FORMAT_UNKNOWN ? -ENOENT : add_modules(orc, view, modules);
}

int kernel_orc_create(struct kernel_orc **orc, const struct guest_view *view,
		      const struct guest_paging *paging, const struct symbols *symbols,
		      const struct module_list *modules)
{
	struct kernel_orc *made = calloc(1, sizeof(*made));
	int error = -ENOMEM;

	if (made) {
		made->paging = *paging;
		error = fill(made, view, symbols, modules);
	}
	if (error) {
		kernel_orc_free(made);
		made = NULL;
	}
	*orc = made;
	return error;
}

void kernel_orc_free(struct kernel_orc *orc)
{
	if (!orc)
		return;
	for (size_t i = 0; i < orc->copy_count; i++)
		free(orc->copies[i]);
	free(orc->copies);
	free(orc->tables);
	free(orc);
}

const struct orc_table *kernel_orc_table(const struct kernel_orc *orc, uint64_t ip)
{
	const struct orc_table *kernel = &orc->tables[0];
	size_t low = 1, high = orc->table_count;

	if (ip >= kernel->start && ip < kernel->end)
		return kernel;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct orc_table *table = &orc->tables[middle];

		if (ip < table->start)
			high = middle;
		else if (ip >= table->end)
			low = middle + 1;
		else
			return table;
	}
	return NULL;
}
