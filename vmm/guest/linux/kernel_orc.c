/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_orc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define COUNT_MAX (8u << 20)

/* Guest memory [gva, gva + size) as one range in this process, or NULL if it is not one in guest
 * RAM. */
static const uint8_t *pointer_to(const struct guest_view *view, const struct guest_paging *paging,
				 uint64_t gva, uint64_t size)
{
	struct guest_translation first, here;

	if (guest_translate(view, paging, gva, &first))
		return NULL;
	for (uint64_t at = (gva | 4095) + 1; at < gva + size; at += 4096)
		if (guest_translate(view, paging, at, &here) || here.gpa - first.gpa != at - gva)
			return NULL;
	return guest_physical_pointer(view, first.gpa, size);
}

/* Copies both parts of TABLE into one block. */
static int copy_table(struct kernel_orc *unwinder, const struct guest_view *view, uint64_t entries,
		      struct orc_table *table)
{
	size_t ips_size = table->count * 4ul,
	       size = ips_size + (size_t)table->count * ORC_ENTRY_SIZE;
	uint8_t *copy = malloc(size);

	if (!copy)
		return -ENOMEM;
	if (guest_read_virtual(view, &unwinder->paging, table->ips_gva, copy, ips_size) ||
	    guest_read_virtual(view, &unwinder->paging, entries, copy + ips_size,
			       size - ips_size)) {
		free(copy);
		return -EFAULT;
	}
	table->ips = copy;
	table->entries = copy + ips_size;
	unwinder->copies[unwinder->copy_count++] = copy;
	return 0;
}

/* The kernel's own tables never move: read in place where that is possible. */
static int open_kernel_table(struct kernel_orc *unwinder, const struct guest_view *view,
			     uint64_t entries)
{
	struct orc_table *table = &unwinder->tables[0];
	int error = 0;

	table->ips = pointer_to(view, &unwinder->paging, table->ips_gva, table->count * 4ull);
	table->entries = pointer_to(view, &unwinder->paging, entries,
				    (uint64_t)table->count * ORC_ENTRY_SIZE);
	if (!table->ips || !table->entries)
		error = copy_table(unwinder, view, entries, table);
	if (error)
		return error;
	table->start = orc_address(table, 0);
	table->end = orc_address(table, table->count - 1);
	unwinder->table_count = 1;
	return 0;
}

/* From the linker script: __start_orc_unwind_ip, then __start_orc_unwind, each to its stop. */
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

/* A module can go at any time and its memory be used again: copies. One that can not be read is
 * left out. */
static int add_modules(struct kernel_orc *unwinder, const struct guest_view *view,
		       const struct module_list *modules)
{
	for (size_t i = 0; i < modules->count; i++) {
		const struct module_orc *orc = &modules->orcs[i];
		struct orc_table *table = &unwinder->tables[unwinder->table_count];
		int error;

		if (!orc->count)
			continue;
		*table = (struct orc_table){ .start = modules->modules[i].start,
					     .end = modules->modules[i].start +
						    modules->modules[i].size,
					     .ips_gva = orc->ips,
					     .count = orc->count };
		error = copy_table(unwinder, view, orc->entries, table);
		if (error == -ENOMEM)
			return error;
		if (!error)
			unwinder->table_count++;
	}
	qsort(unwinder->tables + 1, unwinder->table_count - 1, sizeof(struct orc_table),
	      compare_tables);
	return 0;
}

static int fill(struct kernel_orc *unwinder, const struct guest_view *view,
		const struct symbols *symbols, const struct module_list *modules)
{
	uint64_t entries;
	int error;

	unwinder->tables = calloc(modules->count + 1, sizeof(*unwinder->tables));
	unwinder->copies = calloc(modules->count + 1, sizeof(*unwinder->copies));
	if (!unwinder->tables || !unwinder->copies)
		return -ENOMEM;
	error = find_kernel_table(symbols, &unwinder->tables[0], &entries);
	if (!error)
		error = open_kernel_table(unwinder, view, entries);
	if (error)
		return error;
	unwinder->format = orc_detect_format(&unwinder->tables[0]);
	return unwinder->format == ORC_FORMAT_UNKNOWN ? -ENOENT
						      : add_modules(unwinder, view, modules);
}

int kernel_orc_create(struct kernel_orc **unwinder, const struct guest_view *view,
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
	*unwinder = made;
	return error;
}

void kernel_orc_free(struct kernel_orc *unwinder)
{
	if (!unwinder)
		return;
	for (size_t i = 0; i < unwinder->copy_count; i++)
		free(unwinder->copies[i]);
	free(unwinder->copies);
	free(unwinder->tables);
	free(unwinder);
}

const struct orc_table *kernel_orc_table(const struct kernel_orc *unwinder, uint64_t ip)
{
	const struct orc_table *kernel = &unwinder->tables[0];
	size_t low = 1, high = unwinder->table_count;

	if (ip >= kernel->start && ip < kernel->end)
		return kernel;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct orc_table *table = &unwinder->tables[middle];

		if (ip < table->start)
			high = middle;
		else if (ip >= table->end)
			low = middle + 1;
		else
			return table;
	}
	return NULL;
}
