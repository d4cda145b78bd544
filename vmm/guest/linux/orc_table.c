/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/orc_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define SAMPLED_MAX 65536 /* entries that are counted to detect the format */
#define COUNT_MAX   (8u << 20)
#define SP_OLD      5
#define SP_NEW      3

static uint16_t flags_at(const struct orc_table *table, uint32_t index)
{
	uint16_t flags;

	memcpy(&flags, table->entries + (size_t)index * ORC_ENTRY_SIZE + 4, sizeof(flags));
	return flags;
}

/* Frequencies of the values that distinguish the formats. */
struct census {
	uint32_t sampled, three_bit_calls, two_bit_calls, sp_of_old, sp_of_new;
};

static bool count_values(const struct orc_table *table, struct census *census)
{
	uint32_t step = table->count / SAMPLED_MAX + 1;

	for (uint32_t i = 0; i < table->count; i += step) {
		uint16_t flags = flags_at(table, i);

		if (flags >> 12)
			return false;
		census->sampled++;
		census->three_bit_calls += (flags >> 8 & 7) == 2;
		census->two_bit_calls += (flags >> 8 & 7) == 0;
		census->sp_of_old += (flags & 15) == SP_OLD;
		census->sp_of_new += (flags & 15) == SP_NEW;
	}
	return true;
}

/* Few entries are ends, so all are read, up to the first with the highest bit. */
static enum orc_format two_bit_format(const struct orc_table *table)
{
	bool bit_10 = false;

	for (uint32_t i = 0; i < table->count; i++) {
		uint16_t flags = flags_at(table, i);

		if (flags >> 11 & 1)
			return ORC_FORMAT_SIGNAL_END;
		bit_10 |= flags >> 10 & 1;
	}
	return bit_10 ? ORC_FORMAT_END : ORC_FORMAT_NO_END;
}

/*
 * Nearly all entries are calls: type 2 in the 3-bit field, 0 in the older 2-bit one. Of the 2-bit
 * formats, only the one with a signal bit uses bit 11 (end), and the first one does not use bit 10.
 * Most entries are based on the stack pointer: its number shows the numbering.
 */
enum orc_format orc_detect_format(const struct orc_table *table)
{
	struct census census = { 0 };
	uint32_t half;

	if (!count_values(table, &census))
		return ORC_FORMAT_UNKNOWN;
	half = census.sampled / 2;
	if (census.three_bit_calls > half && census.sp_of_new > half)
		return ORC_FORMAT_RENUMBERED;
	if (census.sp_of_old <= half)
		return ORC_FORMAT_UNKNOWN;
	if (census.three_bit_calls > half)
		return ORC_FORMAT_SIGNAL;
	if (census.two_bit_calls > half)
		return two_bit_format(table);
	return ORC_FORMAT_UNKNOWN;
}

/*
 * The newer numbers were derived from the tables of Debian's 7.2 and the code that they describe.
 * The ones missing here do not occur there.
 */
static enum orc_register register_of(enum orc_format format, unsigned int number)
{
	static const enum orc_register old[16] = {
		[0] = ORC_UNDEFINED,
		[1] = ORC_PREVIOUS_SP,
		[2] = ORC_DX,
		[3] = ORC_DI,
		[4] = ORC_BP,
		[5] = ORC_SP,
		[6] = ORC_R10,
		[7] = ORC_R13,
		[8] = ORC_BP_INDIRECT,
		[9] = ORC_SP_INDIRECT,
		[10 ... 15] = ORC_UNKNOWN,
	};
	static const enum orc_register new[16] = {
		[0] = ORC_UNDEFINED,   [1] = ORC_UNKNOWN,      [2] = ORC_DX,
		[3] = ORC_SP,          [4] = ORC_BP,           [5] = ORC_UNKNOWN,
		[6] = ORC_R10,         [7] = ORC_R13,          [8] = ORC_PREVIOUS_SP,
		[9] = ORC_SP_INDIRECT, [10] = ORC_BP_INDIRECT, [11 ... 15] = ORC_UNKNOWN,
	};

	return format == ORC_FORMAT_RENUMBERED ? new[number & 15] : old[number & 15];
}

uint64_t orc_address(const struct orc_table *table, uint32_t index)
{
	int32_t relative;

	memcpy(&relative, table->ips + index * 4ull, sizeof(relative));
	return table->ips_gva + index * 4ull + (uint64_t)(int64_t)relative;
}

static enum orc_type three_bit_type(uint16_t flags)
{
	unsigned int type = flags >> 8 & 7;

	return type <= ORC_TYPE_REGS_PARTIAL ? (enum orc_type)type : ORC_TYPE_NONE;
}

static enum orc_type end_type(enum orc_format format, uint16_t flags)
{
	if (format == ORC_FORMAT_NO_END)
		return ORC_TYPE_NONE_OR_END;
	return flags >> (format == ORC_FORMAT_END ? 10 : 11) & 1 ? ORC_TYPE_END : ORC_TYPE_NONE;
}

/* In the older formats an undefined stack pointer is the end, or cannot be unwound. */
static enum orc_type two_bit_type(enum orc_format format, uint16_t flags)
{
	static const enum orc_type types[] = { ORC_TYPE_CALL, ORC_TYPE_REGS, ORC_TYPE_REGS_PARTIAL,
					       ORC_TYPE_NONE };

	if (!(flags & 15))
		return end_type(format, flags);
	return types[flags >> 8 & 3];
}

static void decode(const struct orc_table *table, enum orc_format format, uint32_t index,
		   struct orc_entry *entry)
{
	uint8_t bytes[ORC_ENTRY_SIZE];
	uint16_t flags;

	memcpy(bytes, table->entries + (size_t)index * ORC_ENTRY_SIZE, sizeof(bytes));
	memcpy(&entry->sp_offset, bytes, 2);
	memcpy(&entry->bp_offset, bytes + 2, 2);
	memcpy(&flags, bytes + 4, 2);
	entry->sp_register = register_of(format, flags & 15);
	entry->bp_register = register_of(format, flags >> 4 & 15);
	if (format == ORC_FORMAT_SIGNAL || format == ORC_FORMAT_RENUMBERED) {
		entry->type = three_bit_type(flags);
		entry->signal = flags >> 11 & 1;
	} else {
		entry->type = two_bit_type(format, flags);
		entry->signal = format == ORC_FORMAT_SIGNAL_END && flags >> 10 & 1;
	}
	if (format == ORC_FORMAT_END || format == ORC_FORMAT_NO_END)
		entry->signal =
			entry->type == ORC_TYPE_REGS || entry->type == ORC_TYPE_REGS_PARTIAL;
}

bool orc_find(const struct orc_table *table, enum orc_format format, uint64_t ip,
	      struct orc_entry *entry)
{
	uint32_t low = 0, high = table->count;

	if (ip < table->start || ip >= table->end)
		return false;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (orc_address(table, middle) <= ip)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return false;
	decode(table, format, low - 1, entry);
	return true;
}

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
