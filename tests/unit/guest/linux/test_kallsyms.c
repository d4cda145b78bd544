/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/kallsyms_image.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/kallsyms.h"

#define TEXT     0xffffffff9c200000ull
#define TEXT_32  0xc1000000ull
#define COUNT    1500
#define CAPACITY (256 << 10)
#define BEFORE   4096 /* bytes of other data on both sides */
#define FORMS    8

struct fixture {
	struct kallsyms_symbol *symbols;
	uint8_t *bytes;
	size_t size;
	struct span span;
	uint64_t text;
	struct kallsyms kallsyms;
};

/* Two per-CPU symbols, then functions, one of them with a very long name. */
static void fill_symbols(struct kallsyms_symbol *symbols, uint64_t text)
{
	for (unsigned int i = 0; i < COUNT; i++) {
		symbols[i].address = i < 2 ? i * 0x1000 : text + (i - 2) / 2 * 64;
		symbols[i].type = i < 2 ? 'A' : 'T';
		snprintf(symbols[i].name, sizeof(symbols[i].name), "function_%u", i);
	}
	memset(symbols[700].name, 'x', 250);
	symbols[700].name[250] = '\0';
}

static void make(struct fixture *fixture, enum kallsyms_layout layout)
{
	uint64_t text = layout == KALLSYMS_32BIT ? TEXT_32 : TEXT, gva = text + (16 << 20);

	fixture->text = text;
	fixture->symbols = calloc(COUNT, sizeof(*fixture->symbols));
	fixture->bytes = calloc(1, CAPACITY);
	if (!fixture->symbols || !fixture->bytes)
		abort();
	fill_symbols(fixture->symbols, text);
	if (layout == KALLSYMS_32BIT) /* per-CPU ones are in the image */
		fixture->symbols[0].address = fixture->symbols[1].address = text;
	memset(fixture->bytes, 0x41, BEFORE);
	fixture->size = kallsyms_image_write(layout, fixture->symbols, COUNT, text, gva + BEFORE,
					     fixture->bytes + BEFORE, CAPACITY - 2 * BEFORE);
	fixture->size += 2 * BEFORE;
	fixture->span = span_of(fixture->bytes, fixture->size);
}

static void destroy(struct fixture *fixture)
{
	free(fixture->symbols);
	free(fixture->bytes);
}

static int locate(struct fixture *fixture)
{
	uint64_t token_index;

	if (!kallsyms_find_token_index(fixture->span, 0, &token_index))
		return -ESRCH;
	return kallsyms_locate(&fixture->kallsyms, fixture->span, fixture->text + (16 << 20),
			       token_index);
}

/* Checks that all addresses and names equal those written in the current form. */
static bool equals(struct fixture *fixture)
{
	char name[KALLSYMS_NAME_MAX], type;
	uint64_t position = 0;

	for (uint32_t i = 0; i < COUNT; i++) {
		const struct kallsyms_symbol *symbol = &fixture->symbols[i];

		if (kallsyms_next_name(&fixture->kallsyms, &position, &type, name) ||
		    strcmp(name, symbol->name) || type != symbol->type ||
		    kallsyms_address(&fixture->kallsyms, i) != symbol->address)
			return false;
	}
	return true;
}

/* The forms are tried in order; a caller's check of what the names mean picks the right one. */
static bool some_form_equals(struct fixture *fixture)
{
	for (unsigned int form = 0; form < FORMS; form++)
		if (!kallsyms_try_addresses(&fixture->kallsyms, form) && equals(fixture))
			return true;
	return false;
}

static void check_layout(enum kallsyms_layout layout)
{
	struct fixture fixture;

	make(&fixture, layout);
	CHECK_EQUAL(locate(&fixture), 0);
	CHECK_EQUAL(fixture.kallsyms.count, COUNT);
	CHECK(some_form_equals(&fixture));
	CHECK_EQUAL(kallsyms_try_addresses(&fixture.kallsyms, FORMS), -ERANGE);
	destroy(&fixture);
}

TEST(kallsyms, layout_of_5_10)
{
	check_layout(KALLSYMS_5_10);
}

TEST(kallsyms, layout_of_6_2_with_the_sequence_before_the_tokens)
{
	check_layout(KALLSYMS_6_2);
}

TEST(kallsyms, layout_of_6_12)
{
	check_layout(KALLSYMS_6_12);
}

TEST(kallsyms, layout_of_7_2_pc_relative)
{
	check_layout(KALLSYMS_7_2);
}

TEST(kallsyms, layout_with_absolute_addresses)
{
	check_layout(KALLSYMS_ABSOLUTE_BEFORE);
}

TEST(kallsyms, layout_of_a_32_bit_kernel)
{
	check_layout(KALLSYMS_32BIT);
}

/* A truncated image is not read past its end, and counts are checked. */
TEST(kallsyms, truncated_tables_are_refused)
{
	struct kallsyms whole;

	FIXTURE(struct fixture, fixture, make, destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(locate(&fixture), 0);
	whole = fixture.kallsyms;
	for (size_t size = 0; size < whole.token_index + KALLSYMS_TOKEN_INDEX_SIZE; size += 61) {
		uint8_t *exact = malloc(size ? size : 1);

		REQUIRE(exact);
		memcpy(exact, fixture.bytes, size);
		fixture.span = span_of(exact, size);
		CHECK(locate(&fixture) != 0);
		free(exact);
	}
	/* The names are there, but not the addresses. */
	fixture.span = span_of(fixture.bytes, whole.addresses + COUNT * 4 - 4);
	for (unsigned int form = 0; form < FORMS && !locate(&fixture); form++)
		CHECK(kallsyms_try_addresses(&fixture.kallsyms, form) || !equals(&fixture));
}

TEST(kallsyms, a_changed_length_breaks_the_table)
{
	FIXTURE(struct fixture, fixture, make, destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(locate(&fixture), 0);
	fixture.bytes[fixture.kallsyms.names]++;
	CHECK_EQUAL(locate(&fixture), -ENOENT);
}

TEST(kallsyms, addresses_that_do_not_ascend_are_refused)
{
	uint32_t offset = 5;

	FIXTURE(struct fixture, fixture, make, destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(locate(&fixture), 0);
	REQUIRE_EQUAL(kallsyms_try_addresses(&fixture.kallsyms, 0), 0);
	memcpy(fixture.bytes + fixture.kallsyms.addresses + 900 * 4, &offset, sizeof(offset));
	CHECK_EQUAL(kallsyms_try_addresses(&fixture.kallsyms, 0), -ENOENT);
}

TEST(kallsyms, invalid_names_are_refused)
{
	uint64_t position = 0;
	char name[KALLSYMS_NAME_MAX], type;

	FIXTURE(struct fixture, fixture, make, destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(locate(&fixture), 0);
	fixture.bytes[fixture.kallsyms.names + 1] = '7'; /* position of the type */
	CHECK_EQUAL(kallsyms_next_name(&fixture.kallsyms, &position, &type, name), -EINVAL);
}

TEST(kallsyms, other_data_has_no_token_index)
{
	uint8_t *bytes = malloc(CAPACITY);
	uint64_t found;

	REQUIRE(bytes);
	for (size_t i = 0; i < CAPACITY; i++)
		bytes[i] = (uint8_t)(i % 256 * 2 >> (i % 3));
	CHECK(!kallsyms_find_token_index(span_of(bytes, CAPACITY), 0, &found));
	memset(bytes, 0, CAPACITY);
	CHECK(!kallsyms_find_token_index(span_of(bytes, CAPACITY), 0, &found));
	free(bytes);
}

/* Each pair of words may be the markers of two blocks, which starts a search for the count. */
TEST(kallsyms, search_for_markers_is_bounded)
{
	const size_t before = 16u << 20;
	struct fixture fixture;
	uint8_t *bytes = calloc(1, before + CAPACITY);
	uint32_t marker = 600;

	REQUIRE(bytes);
	make(&fixture, KALLSYMS_6_12);
	REQUIRE_EQUAL(locate(&fixture), 0);
	for (size_t at = 4; at < before; at += 8)
		memcpy(bytes + at, &marker, sizeof(marker));
	memcpy(bytes + before, fixture.bytes + fixture.kallsyms.tokens,
	       fixture.size - fixture.kallsyms.tokens);
	CHECK_EQUAL(
		kallsyms_locate(&fixture.kallsyms, span_of(bytes, before + CAPACITY), TEXT,
				before + fixture.kallsyms.token_index - fixture.kallsyms.tokens),
		-ENOENT);
	free(bytes);
	destroy(&fixture);
}
