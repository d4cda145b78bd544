/* SPDX-License-Identifier: Apache-2.0 */
/* Handwritten .eh_frame sections: the effect of each instruction, and that invalid ones are
 * refused. */
#include <errno.h>

#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/dwarf_cursor.h"
#include "vmm/guest/unwind/eh_frame.h"

#define FRAMES 0x500000ull /* as linked */
#define CODE   0x401000ull /* is at file offset 0x1000 */
#define OFFSET 0x1000ull
#define SIZE   0x1000u

struct image {
	uint8_t bytes[1024];
	size_t size, entry; /* entry: start of the one that is being written */
	struct cfi_table *table;
};

static void put(struct image *image, const void *bytes, size_t size)
{
	memcpy(image->bytes + image->size, bytes, size);
	image->size += size;
}

static void put_number(struct image *image, uint64_t number, size_t size)
{
	put(image, &number, size);
}

static void begin(struct image *image, uint32_t id)
{
	image->entry = image->size;
	put_number(image, 0, 4);
	put_number(image, id, 4);
}

static void end(struct image *image)
{
	uint32_t length = (uint32_t)(image->size - image->entry - 4);

	memcpy(image->bytes + image->entry, &length, sizeof(length));
}

#define PUT(image, ...)                                                                            \
	do {                                                                                       \
		static const uint8_t put_bytes[] = { __VA_ARGS__ };                                \
                                                                                                   \
		put(image, put_bytes, sizeof(put_bytes));                                          \
	} while (0)

/* A CIE as gcc writes it, at 0: code alignment 1, data -8, column 16, pointers pcrel sdata4; rsp+8,
 * ra at -8.
 */
static void put_cie(struct image *image, const char *letters)
{
	*image = (struct image){ .size = 0 };
	begin(image, 0);
	PUT(image, 1);
	put(image, letters, strlen(letters) + 1);
	PUT(image, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1);
	end(image);
}

/* The start of an FDE of the CIE at 0 for SIZE bytes at ADDRESS. */
static void begin_fde(struct image *image, uint64_t address, uint32_t size)
{
	begin(image, (uint32_t)image->size + 4);
	put_number(image, address - (FRAMES + image->size), 4);
	put_number(image, size, 4);
	PUT(image, 0);
}

static void end_fde(struct image *image)
{
	end(image);
}

static int compile(struct image *image)
{
	struct eh_segment code = { .address = CODE, .offset = OFFSET, .size = SIZE };
	struct eh_frame eh_frame = { .frames = span_of(image->bytes, image->size),
				     .frames_address = FRAMES,
				     .segments = &code,
				     .segment_count = 1 };

	return eh_frame_compile(&image->table, &eh_frame);
}

static const struct cfi_rule *rule_at(const struct image *image, uint64_t from_code)
{
	return cfi_table_find(image->table, OFFSET + from_code);
}

static void check_rule(const struct image *image, uint64_t from_code, struct cfi_rule expected)
{
	const struct cfi_rule *rule = rule_at(image, from_code);

	if (memcmp(rule, &expected, sizeof(expected)))
		FAIL_TEST("at %llu: cfa %u r%u%+d %+d, bp %u %+d, ip %u %+d, signal %u",
			  (unsigned long long)from_code, rule->cfa, rule->cfa_register,
			  rule->cfa_offset, rule->cfa_addend, rule->bp, rule->bp_offset, rule->ip,
			  rule->ip_offset, rule->signal);
}

/* Nearly all rules: the return address below the CFA, RBP saved or not. */
static struct cfi_rule with_bp(enum dwarf_register base, int32_t offset, enum cfi_location bp,
			       int16_t bp_offset)
{
	return (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				  .cfa_register = (uint8_t)base,
				  .cfa_offset = offset,
				  .bp = (uint8_t)bp,
				  .bp_offset = bp_offset,
				  .ip = CFI_AT_CFA,
				  .ip_offset = -8 };
}

static struct cfi_rule on_stack(int32_t offset)
{
	return with_bp(DWARF_RSP, offset, CFI_SAME, 0);
}

#define NONE    ((struct cfi_rule){ .cfa = CFI_CFA_NONE })
#define UNKNOWN ((struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN })

/* One FDE over 64 bytes of code, with these instructions. */
#define COMPILE(image, ...)                                                                        \
	do {                                                                                       \
		put_cie(image, "zR");                                                              \
		begin_fde(image, CODE, 64);                                                        \
		PUT(image, __VA_ARGS__);                                                           \
		end_fde(image);                                                                    \
		REQUIRE_EQUAL(compile(image), 0);                                                  \
	} while (0)

TEST(eh_frame, a_function_with_a_frame_pointer)
{
	struct image image;

	/* push %rbp; mov %rsp, %rbp; ...; leave; ret */
	COMPILE(&image, 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x70, 0x0c, 7, 8, 0xc6);
	check_rule(&image, 0, on_stack(8));
	check_rule(&image, 1, with_bp(DWARF_RSP, 16, CFI_AT_CFA, -16));
	check_rule(&image, 4, with_bp(DWARF_RBP, 16, CFI_AT_CFA, -16));
	check_rule(&image, 51, with_bp(DWARF_RBP, 16, CFI_AT_CFA, -16));
	check_rule(&image, 52, on_stack(8));
	check_rule(&image, 63, on_stack(8));
	check_rule(&image, 64, NONE);
	CHECK_EQUAL(cfi_table_find(image.table, OFFSET - 1)->cfa, CFI_CFA_NONE);
	CHECK_EQUAL(cfi_table_find(image.table, 1ull << 32 | OFFSET)->cfa, CFI_CFA_NONE);
	cfi_table_free(image.table);
}

TEST(eh_frame, remembered_states_include_the_cfa)
{
	struct image image;

	COMPILE(&image, 0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x41, 0x0c, 7, 8, 0xc6, 0x41, 0x0b, 0x41,
		0x0a, 0x0e, 32, 0x41, 0x0b);
	check_rule(&image, 1, with_bp(DWARF_RSP, 16, CFI_AT_CFA, -16));
	check_rule(&image, 2, on_stack(8));
	check_rule(&image, 3, with_bp(DWARF_RSP, 16, CFI_AT_CFA, -16));
	check_rule(&image, 4, with_bp(DWARF_RSP, 32, CFI_AT_CFA, -16));
	check_rule(&image, 5, with_bp(DWARF_RSP, 16, CFI_AT_CFA, -16));
	cfi_table_free(image.table);
}

TEST(eh_frame, advances_of_all_widths)
{
	struct image image;

	COMPILE(&image, 0x02, 2, 0x0e, 16, 0x03, 3, 0, 0x0e, 24, 0x04, 4, 0, 0, 0, 0x0e, 32, 0x1d,
		5, 0, 0, 0, 0, 0, 0, 0, 0x0e, 40, 0x01, 0x00, 0x00, 0x00, 0x00);
	check_rule(&image, 1, on_stack(8));
	check_rule(&image, 2, on_stack(16));
	check_rule(&image, 5, on_stack(24));
	check_rule(&image, 9, on_stack(32));
	check_rule(&image, 14, UNKNOWN); /* set_loc leads out of the code */
	cfi_table_free(image.table);
}

TEST(eh_frame, set_loc_has_the_encoding_of_pointers)
{
	struct image image;
	uint64_t there = CODE + 20;

	put_cie(&image, "zR");
	begin_fde(&image, CODE, 64);
	PUT(&image, 0x01);
	put_number(&image, there - (FRAMES + image.size), 4);
	PUT(&image, 0x0e, 16);
	end_fde(&image);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 19, on_stack(8));
	check_rule(&image, 20, on_stack(16));
	cfi_table_free(image.table);
}

TEST(eh_frame, offsets_of_all_kinds)
{
	struct image image;

	COMPILE(&image, 0x05, 6, 2, 0x41, 0x11, 6, 0x7d, 0x41, 0x2f, 6, 1, 0x41, 0x06, 6, 0x41,
		0x12, 6, 0x7c, 0x41, 0x13, 0x7b, 0x41, 0x2e, 32, 0x41, 0x07, 6, 0x41, 0x08, 6, 0x41,
		0x09, 6, 3, 0x41, 0x14, 6, 2, 0x41, 0x16, 6, 2, 0x77, 0);
	check_rule(&image, 0, with_bp(DWARF_RSP, 8, CFI_AT_CFA, -16));
	check_rule(&image, 1, with_bp(DWARF_RSP, 8, CFI_AT_CFA, 24));
	check_rule(&image, 2, with_bp(DWARF_RSP, 8, CFI_AT_CFA, 8));
	check_rule(&image, 3, on_stack(8));
	check_rule(&image, 4, with_bp(DWARF_RBP, 32, CFI_SAME, 0));
	check_rule(&image, 5, with_bp(DWARF_RBP, 40, CFI_SAME, 0));
	check_rule(&image, 6, with_bp(DWARF_RBP, 40, CFI_SAME, 0));
	check_rule(&image, 7, with_bp(DWARF_RBP, 40, CFI_UNDEFINED, 0));
	check_rule(&image, 8, with_bp(DWARF_RBP, 40, CFI_SAME, 0));
	check_rule(&image, 9, with_bp(DWARF_RBP, 40, CFI_REGISTER, 3));
	/* Values without a location: RBP is unknown, but the chain continues. */
	check_rule(&image, 10, with_bp(DWARF_RBP, 40, CFI_UNDEFINED, 0));
	check_rule(&image, 11, with_bp(DWARF_RBP, 40, CFI_UNDEFINED, 0));
	cfi_table_free(image.table);
}

/* 2^60 times -8 is INT64_MIN, which cannot be negated. */
TEST(eh_frame, invalid_negative_offset)
{
	struct image image;

	COMPILE(&image, 0x41, 0x2f, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10);
	check_rule(&image, 0, on_stack(8));
	check_rule(&image, 1, with_bp(DWARF_RSP, 8, CFI_UNDEFINED, 0));
	cfi_table_free(image.table);
}

TEST(eh_frame, rbx_is_tracked_like_rbp)
{
	struct image image;
	struct cfi_rule rule = on_stack(16);

	COMPILE(&image, 0x41, 0x0e, 16, 0x83, 2, 0x41, 0x0d, 3, 0x41, 0x0c, 7, 8, 0xc3);
	check_rule(&image, 0, on_stack(8));
	rule.bx = CFI_AT_CFA;
	rule.bx_offset = -16;
	check_rule(&image, 1, rule);
	rule.cfa_register = DWARF_RBX;
	check_rule(&image, 2, rule);
	check_rule(&image, 3, on_stack(8));
	cfi_table_free(image.table);
}

TEST(eh_frame, outermost_frames_and_return_addresses_elsewhere)
{
	struct image image;

	COMPILE(&image, 0x41, 0x07, 16, 0x41, 0x09, 16, 5, 0x41, 0x08, 16, 0x41, 0x05, 16, 2);
	check_rule(&image, 0, on_stack(8));
	check_rule(&image, 1,
		   (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				      .cfa_register = DWARF_RSP,
				      .ip = CFI_UNDEFINED });
	check_rule(&image, 2,
		   (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				      .cfa_register = DWARF_RSP,
				      .cfa_offset = 8,
				      .ip = CFI_REGISTER,
				      .ip_offset = 5 });
	check_rule(&image, 3, UNKNOWN);
	check_rule(&image, 4,
		   (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				      .cfa_register = DWARF_RSP,
				      .cfa_offset = 8,
				      .ip = CFI_AT_CFA,
				      .ip_offset = -16 });
	cfi_table_free(image.table);
}

TEST(eh_frame, expressions_that_occur)
{
	struct image image;

	/* A realigned stack; OpenSSL's saved stack pointer; the linker's PLT; and none of these. */
	COMPILE(&image, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0, 0x41, 0x0f, 6, 0x77, 0x98,
		1, 0x06, 0x23, 8, 0x41, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33,
		0x24, 0x22, 0x41, 0x0f, 4, 0x76, 0x78, 0x06, 0x06, 0x41, 0x0f, 0, 0x41, 0x0f, 2,
		0x76, 0x78);
	check_rule(&image, 0,
		   (struct cfi_rule){ .cfa = CFI_CFA_MEMORY,
				      .cfa_register = DWARF_RBP,
				      .cfa_offset = -8,
				      .ip = CFI_AT_CFA,
				      .ip_offset = -8,
				      .bp = CFI_AT_RBP });
	check_rule(&image, 1,
		   (struct cfi_rule){ .cfa = CFI_CFA_MEMORY,
				      .cfa_register = DWARF_RSP,
				      .cfa_offset = 152,
				      .ip = CFI_AT_CFA,
				      .ip_offset = -8,
				      .cfa_addend = 8,
				      .bp = CFI_AT_RBP });
	check_rule(&image, 2,
		   (struct cfi_rule){ .cfa = CFI_CFA_PLT,
				      .cfa_register = DWARF_RSP,
				      .cfa_offset = 8,
				      .ip = CFI_AT_CFA,
				      .ip_offset = -8,
				      .cfa_addend = 11,
				      .bp = CFI_AT_RBP });
	check_rule(&image, 3, UNKNOWN);
	check_rule(&image, 4, UNKNOWN);
	check_rule(&image, 5, UNKNOWN);
	cfi_table_free(image.table);
}

TEST(eh_frame, signal_frames_have_their_rule_and_mark)
{
	struct image image;

	put_cie(&image, "zRS");
	begin_fde(&image, CODE, 16);
	PUT(&image, 0x0f, 4, 0x77, 0xa0, 1, 0x06);                         /* CFA: *(rsp + 160) */
	PUT(&image, 0x10, 6, 3, 0x77, 0xf8, 0, 0x10, 7, 3, 0x77, 0xa0, 1); /* rbp, rsp */
	PUT(&image, 0x10, 3, 3, 0x77, 0x80, 1);                            /* rbx */
	PUT(&image, 0x10, 16, 3, 0x77, 0xa8, 1, 0x41);                     /* rip */
	PUT(&image, 0x10, 7, 3, 0x77, 0xa8, 1);                            /* rsp is not the CFA */
	end_fde(&image);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 0,
		   (struct cfi_rule){ .cfa = CFI_CFA_MEMORY,
				      .cfa_register = DWARF_RSP,
				      .cfa_offset = 160,
				      .bp = CFI_AT_RSP,
				      .bp_offset = 120,
				      .bx = CFI_AT_RSP,
				      .bx_offset = 128,
				      .ip = CFI_AT_RSP,
				      .ip_offset = 168,
				      .signal = 1 });
	check_rule(&image, 1, UNKNOWN);
	cfi_table_free(image.table);
}

TEST(eh_frame, code_after_an_invalid_instruction_is_unknown)
{
	/* Each after one valid row of one byte. */
	static const uint8_t bad[][4] = {
		{ 0x3c, 0, 0, 0 },          /* no instruction */
		{ 0x0b, 0, 0, 0 },          /* nothing was remembered */
		{ 0x02, 0xff, 0, 0 },       /* beyond the code */
		{ 0x0e, 0x80, 0x80, 0x80 }, /* a number without an end */
		{ 0x0f, 40, 0, 0 },         /* an expression without one */
		{ 0x0c, 200, 1, 8 },        /* register 200 */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct image image;

		put_cie(&image, "zR");
		begin_fde(&image, CODE, 64);
		PUT(&image, 0x41);
		put(&image, bad[i], sizeof(bad[i]));
		end_fde(&image);
		REQUIRE_EQUAL(compile(&image), 0);
		check_rule(&image, 0, on_stack(8));
		check_rule(&image, 1, UNKNOWN);
		check_rule(&image, 63, UNKNOWN);
		check_rule(&image, 64, NONE);
		cfi_table_free(image.table);
	}
}

TEST(eh_frame, endless_remembering_ends)
{
	struct image image;

	put_cie(&image, "zR");
	begin_fde(&image, CODE, 64);
	for (int i = 0; i < 100; i++)
		PUT(&image, 0x0a);
	end_fde(&image);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 0, UNKNOWN);
	cfi_table_free(image.table);
}

static void put_plain_fde(struct image *image, uint64_t address, uint32_t size, uint8_t offset)
{
	begin_fde(image, address, size);
	PUT(image, 0x0e);
	put(image, &offset, 1);
	end_fde(image);
}

TEST(eh_frame, fdes_in_any_order_overlapping_and_outside)
{
	struct image image;

	put_cie(&image, "zR");
	put_plain_fde(&image, CODE + 32, 32, 16);
	put_plain_fde(&image, CODE, 16, 24);
	put_plain_fde(&image, CODE + 40, 40, 32);       /* half of it is described before */
	put_plain_fde(&image, CODE + SIZE - 8, 16, 40); /* ends after the code */
	put_plain_fde(&image, CODE - 0x1000, 16, 40);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 0, on_stack(24));
	check_rule(&image, 16, NONE);
	check_rule(&image, 32, on_stack(16));
	check_rule(&image, 63, on_stack(16));
	check_rule(&image, 64, on_stack(32));
	check_rule(&image, 80, NONE);
	check_rule(&image, SIZE - 8, NONE);
	CHECK_EQUAL(image.table->count, 5);
	cfi_table_free(image.table);
}

TEST(eh_frame, neighbours_with_one_rule_are_one_row)
{
	struct image image;

	put_cie(&image, "zR");
	put_plain_fde(&image, CODE, 16, 16);
	put_plain_fde(&image, CODE + 16, 16, 16);
	REQUIRE_EQUAL(compile(&image), 0);
	CHECK_EQUAL(image.table->count, 2); /* it, and its end */
	cfi_table_free(image.table);
}

TEST(eh_frame, cies_of_other_versions_and_letters)
{
	struct image image;

	put_cie(&image, "zRB");
	put_plain_fde(&image, CODE, 16, 16);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 0, on_stack(16));
	cfi_table_free(image.table);
	put_cie(&image, "zQ"); /* Q is unknown */
	put_plain_fde(&image, CODE, 16, 16);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 0, NONE);
	cfi_table_free(image.table);

	/* Version 4, with sizes of address and selector, personality and LSDA, absolute pointers.
	 */
	image = (struct image){ .size = 0 };
	begin(&image, 0);
	PUT(&image, 4, 'z', 'P', 'L', 'R', 0, 8, 0, 1, 0x78, 16, 7, 0x9b, 1, 2, 3, 4, 0x1b, 0x00);
	PUT(&image, 0x0c, 7, 8, 0x90, 1);
	end(&image);
	begin(&image, (uint32_t)image.size + 4);
	put_number(&image, CODE, 8);
	put_number(&image, 16, 8);
	PUT(&image, 4, 9, 9, 9, 9, 0x0e, 24);
	end(&image);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 15, on_stack(24));
	cfi_table_free(image.table);
}

TEST(eh_frame, code_alignment_is_a_factor)
{
	struct image image = { .size = 0 };

	begin(&image, 0);
	PUT(&image, 1, 'z', 'R', 0, 4, 0x7c, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 2);
	end(&image);
	begin_fde(&image, CODE, 64);
	PUT(&image, 0x42, 0x0e, 16, 0x86, 4);
	end_fde(&image);
	REQUIRE_EQUAL(compile(&image), 0);
	check_rule(&image, 7, on_stack(8));
	check_rule(&image, 8, with_bp(DWARF_RSP, 16, CFI_AT_CFA, -16));
	cfi_table_free(image.table);
}

/* With an entry of length 0 before the one in the header's table, as some linkers write it. */
TEST(eh_frame, table_of_the_header_is_used)
{
	struct eh_segment code = { .address = CODE, .offset = OFFSET, .size = SIZE };
	struct image image, header = { .size = 0 };
	uint64_t fde, at = FRAMES + 0x10000, address;
	struct eh_frame eh_frame;

	put_cie(&image, "zR");
	put_number(&image, 0, 4);
	fde = image.size;
	put_plain_fde(&image, CODE, 16, 16);
	PUT(&header, 1, 0x1b, 0x03, 0x3b);
	put_number(&header, FRAMES - (at + 4), 4);
	put_number(&header, 1, 4);
	put_number(&header, CODE - at, 4);
	put_number(&header, FRAMES + fde - at, 4);
	eh_frame = (struct eh_frame){ .header = span_of(header.bytes, header.size),
				      .header_address = at,
				      .frames = span_of(image.bytes, image.size),
				      .frames_address = FRAMES,
				      .segments = &code,
				      .segment_count = 1 };
	REQUIRE_EQUAL(eh_frame_address(eh_frame.header, at, &address), 0);
	CHECK_EQUAL(address, FRAMES);
	REQUIRE_EQUAL(eh_frame_compile(&image.table, &eh_frame), 0);
	check_rule(&image, 0, on_stack(16));
	cfi_table_free(image.table);
	header.bytes[0] = 2;
	CHECK_EQUAL(eh_frame_compile(&image.table, &eh_frame), -EINVAL);
	CHECK_EQUAL(eh_frame_address(eh_frame.header, at, &address), -EINVAL);
}

static uint64_t pointer(uint8_t encoding, const void *bytes, size_t size, bool *failed)
{
	struct dwarf_cursor cursor = { .bytes = span_of(bytes, size), .address = 0x1001 };
	uint64_t value = dwarf_pointer(&cursor, encoding, 0x100000);

	*failed = cursor.failed;
	return value;
}

TEST(eh_frame, pointers_of_all_encodings)
{
	static const uint8_t bytes[16] = { 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1 };
	static const struct {
		uint8_t encoding;
		uint64_t value;
	} good[] = {
		{ 0x00, 0xfffffffffffffff0 },
		{ 0x02, 0xfff0 },
		{ 0x03, 0xfffffff0 },
		{ 0x04, 0xfffffffffffffff0 },
		{ 0x0a, 0xfffffffffffffff0 },
		{ 0x0b, 0xfffffffffffffff0 },
		{ 0x0c, 0xfffffffffffffff0 },
		{ 0x1b, 0x0ff1 },
		{ 0x10, 0x0ff1 },
		{ 0x3b, 0xffff0 },
		{ 0x33, 0x1000ffff0 },
		{ 0x50, 0x01ff },
	};
	static const uint8_t bad[] = { 0x05, 0x0d, 0x20, 0x40, 0x60, 0x9b, 0xff };
	bool failed;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK_EQUAL(pointer(good[i].encoding, bytes, sizeof(bytes), &failed),
			    good[i].value);
		CHECK(!failed);
	}
	for (size_t i = 0; i < sizeof(bad); i++) {
		pointer(bad[i], bytes, sizeof(bytes), &failed);
		CHECK(failed);
	}
	CHECK_EQUAL(pointer(0x01, "\xe5\x8e\x26", 3, &failed), 624485);
	CHECK_EQUAL(pointer(0x09, "\x80\x7f", 2, &failed), -128);
	pointer(0x0b, bytes, 3, &failed);
	CHECK(failed);
	pointer(0x01, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
		18, &failed);
	CHECK(failed);
}
