/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/orc_table.h"

#include <string.h>

#define SAMPLED_MAX 65536 /* entries that are counted to detect the format */
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
