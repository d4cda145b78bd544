/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/orc_table.h"

#define TEXT  0xffffffff81000000ull
#define IPS   0xffffffff82000000ull
#define COUNT 64
#define STEP  16 /* bytes of code for each entry */

struct fixture {
	uint8_t ips[COUNT * 4], entries[COUNT * ORC_ENTRY_SIZE];
	struct orc_table table;
};

static void set_entry(struct fixture *fixture, uint32_t index, int16_t sp_offset, int16_t bp_offset,
		      uint16_t flags)
{
	uint8_t *entry = fixture->entries + index * ORC_ENTRY_SIZE;

	memcpy(entry, &sp_offset, 2);
	memcpy(entry + 2, &bp_offset, 2);
	memcpy(entry + 4, &flags, 2);
}

/* All entries have FLAGS; entry I describes TEXT + I * STEP on. */
static void make(struct fixture *fixture, uint16_t flags)
{
	for (uint32_t i = 0; i < COUNT; i++) {
		int32_t relative = (int32_t)(TEXT + i * STEP - (IPS + i * 4));

		memcpy(fixture->ips + i * 4, &relative, 4);
		set_entry(fixture, i, (int16_t)(i * 8), -16, flags);
	}
	fixture->table = (struct orc_table){ .start = TEXT,
					     .end = TEXT + COUNT * STEP,
					     .ips_gva = IPS,
					     .ips = fixture->ips,
					     .entries = fixture->entries,
					     .count = COUNT };
}

static enum orc_format format_of(uint16_t most, uint16_t one)
{
	struct fixture fixture;

	make(&fixture, most);
	set_entry(&fixture, 7, 0, 0, one);
	return orc_detect_format(&fixture.table);
}

TEST(orc, formats_are_detected_by_their_values)
{
	CHECK_EQUAL(format_of(0x005, 0x000), ORC_FORMAT_NO_END);
	CHECK_EQUAL(format_of(0x005, 0x205), ORC_FORMAT_NO_END);
	CHECK_EQUAL(format_of(0x005, 0x400), ORC_FORMAT_END);
	CHECK_EQUAL(format_of(0x015, 0x800), ORC_FORMAT_SIGNAL_END);
	CHECK_EQUAL(format_of(0x215, 0xb05), ORC_FORMAT_SIGNAL);
	CHECK_EQUAL(format_of(0x283, 0xb03), ORC_FORMAT_RENUMBERED);
	CHECK_EQUAL(format_of(0x283, 0x1203), ORC_FORMAT_UNKNOWN);
	CHECK_EQUAL(format_of(0x307, 0x305), ORC_FORMAT_UNKNOWN);
}

TEST(orc, entry_extends_to_the_next_one)
{
	struct orc_entry entry;
	struct fixture fixture;

	make(&fixture, 0x215);
	CHECK(!orc_find(&fixture.table, ORC_FORMAT_SIGNAL, TEXT - 1, &entry));
	for (uint32_t i = 0; i < COUNT; i++) {
		CHECK(orc_find(&fixture.table, ORC_FORMAT_SIGNAL, TEXT + i * STEP, &entry));
		CHECK_EQUAL(entry.sp_offset, i * 8);
		CHECK(orc_find(&fixture.table, ORC_FORMAT_SIGNAL, TEXT + i * STEP + STEP - 1,
			       &entry));
		CHECK_EQUAL(entry.sp_offset, i * 8);
	}
	CHECK(!orc_find(&fixture.table, ORC_FORMAT_SIGNAL, TEXT + COUNT * STEP, &entry));
}

static struct orc_entry decode(enum orc_format format, uint16_t flags)
{
	struct orc_entry entry = { 0 };
	struct fixture fixture;

	make(&fixture, flags);
	CHECK(orc_find(&fixture.table, format, TEXT, &entry));
	return entry;
}

TEST(orc, fields_of_each_format)
{
	struct orc_entry entry = decode(ORC_FORMAT_END, 0x015);

	CHECK_EQUAL(entry.sp_register, ORC_SP);
	CHECK_EQUAL(entry.bp_register, ORC_PREVIOUS_SP);
	CHECK_EQUAL(entry.bp_offset, -16);
	CHECK_EQUAL(entry.type, ORC_TYPE_CALL);
	CHECK(!entry.signal);
	CHECK_EQUAL(decode(ORC_FORMAT_NO_END, 0x000).type, ORC_TYPE_NONE_OR_END);
	CHECK_EQUAL(decode(ORC_FORMAT_NO_END, 0x015).type, ORC_TYPE_CALL);
	CHECK_EQUAL(decode(ORC_FORMAT_NO_END, 0x205).type, ORC_TYPE_REGS_PARTIAL);
	CHECK(decode(ORC_FORMAT_NO_END, 0x105).signal);
	CHECK_EQUAL(decode(ORC_FORMAT_END, 0x400).type, ORC_TYPE_END);
	CHECK_EQUAL(decode(ORC_FORMAT_END, 0x000).type, ORC_TYPE_NONE);
	CHECK_EQUAL(decode(ORC_FORMAT_END, 0x105).type, ORC_TYPE_REGS);
	CHECK(decode(ORC_FORMAT_END, 0x205).signal);
	CHECK_EQUAL(decode(ORC_FORMAT_SIGNAL_END, 0x800).type, ORC_TYPE_END);
	CHECK(decode(ORC_FORMAT_SIGNAL_END, 0x405).signal);
	CHECK_EQUAL(decode(ORC_FORMAT_SIGNAL, 0x000).type, ORC_TYPE_NONE);
	CHECK_EQUAL(decode(ORC_FORMAT_SIGNAL, 0x100).type, ORC_TYPE_END);
	CHECK_EQUAL(decode(ORC_FORMAT_SIGNAL, 0xc05).type, ORC_TYPE_REGS_PARTIAL);
	CHECK(decode(ORC_FORMAT_SIGNAL, 0xc05).signal);
	CHECK_EQUAL(decode(ORC_FORMAT_SIGNAL, 0x705).type, ORC_TYPE_NONE);
	entry = decode(ORC_FORMAT_RENUMBERED, 0x283);
	CHECK_EQUAL(entry.sp_register, ORC_SP);
	CHECK_EQUAL(entry.bp_register, ORC_PREVIOUS_SP);
	CHECK_EQUAL(decode(ORC_FORMAT_RENUMBERED, 0x24a).sp_register, ORC_BP_INDIRECT);
	CHECK_EQUAL(decode(ORC_FORMAT_RENUMBERED, 0x25f).sp_register, ORC_UNKNOWN);
}
