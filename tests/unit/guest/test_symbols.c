/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/guest/symbol_table.h"

static const char *name_at(const struct symbols *symbols, uint64_t address)
{
	struct symbol symbol;

	return symbols_find(symbols, address, &symbol) ? symbol.name : "";
}

TEST(symbols, finds_by_address)
{
	struct symbols *symbols = symbols_new();
	struct symbol symbol;

	REQUIRE(symbols);
	CHECK_EQUAL(symbols_add(symbols, 0x3000, 0x10, 't', "sized", "some_module"), 0);
	CHECK_EQUAL(symbols_add(symbols, 0x1000, 0, 'T', "first", NULL), 0);
	CHECK_EQUAL(symbols_add(symbols, 0x2000, 0, 't', "second", NULL), 0);
	symbols_finish(symbols);
	CHECK_EQUAL(symbols_count(symbols), 3);
	CHECK_STRING(name_at(symbols, 0xfff), "");
	CHECK_STRING(name_at(symbols, 0x1000), "first");
	CHECK_STRING(name_at(symbols, 0x1fff), "first");
	CHECK_STRING(name_at(symbols, 0x2fff), "second");
	CHECK_STRING(name_at(symbols, 0x300f), "sized");
	CHECK_STRING(name_at(symbols, 0x3010), "");
	REQUIRE(symbols_find(symbols, 0x3001, &symbol));
	CHECK_STRING(symbol.module, "some_module");
	CHECK_EQUAL(symbol.end, 0x3010);
	CHECK_EQUAL(symbol.type, 't');
	REQUIRE(symbols_find_name(symbols, "second", &symbol));
	CHECK_EQUAL(symbol.start, 0x2000);
	CHECK_EQUAL(symbol.end, 0x3000);
	CHECK(!symbol.module);
	CHECK(!symbols_find_name(symbols, "sized", &symbol));
	symbols_free(symbols);
}

TEST(symbols, aliases_show_the_global_plain_long_name)
{
	static const struct {
		char type;
		const char *name;
	} aliases[] = { { 't', "local_and_very_long" },
			{ 'W', "weak_and_very_long" },
			{ 'T', "__global" },
			{ 'T', "short" },
			{ 'T', "longer" } };
	struct symbols *symbols = symbols_new();
	struct symbol symbol;

	REQUIRE(symbols);
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		symbols_add(symbols, 0x1000, 0, aliases[i].type, aliases[i].name, NULL);
	symbols_finish(symbols);
	CHECK_STRING(name_at(symbols, 0x1004), "longer");
	symbols_at(symbols, 1, &symbol);
	CHECK_STRING(symbol.name, "short");
	symbols_at(symbols, 4, &symbol);
	CHECK_STRING(symbol.name, "weak_and_very_long");
	symbols_free(symbols);
}

TEST(symbols, an_alias_that_ends_early_does_not_hide_the_other)
{
	struct symbols *symbols = symbols_new();

	REQUIRE(symbols);
	symbols_add(symbols, 0x1000, 4, 'T', "short_global", NULL);
	symbols_add(symbols, 0x1000, 8, 't', "long_local", NULL);
	symbols_add(symbols, UINT64_MAX - 1, 16, 't', "at_the_end", NULL);
	symbols_finish(symbols);
	CHECK_STRING(name_at(symbols, 0x1003), "short_global");
	CHECK_STRING(name_at(symbols, 0x1004), "long_local");
	CHECK_STRING(name_at(symbols, 0x1008), "");
	CHECK_STRING(name_at(symbols, UINT64_MAX - 1), "at_the_end");
	symbols_free(symbols);
}

TEST(symbols, last_address_can_be_in_one)
{
	static const uint64_t sizes[] = { 0, 1, 16 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct symbols *symbols = symbols_new();
		struct symbol symbol = { 0 };

		REQUIRE(symbols);
		symbols_add(symbols, 0x1000, 0, 'T', "below", NULL);
		symbols_add(symbols, UINT64_MAX, sizes[i], 'T', "last", NULL);
		symbols_finish(symbols);
		CHECK_STRING(name_at(symbols, UINT64_MAX - 1), "below");
		CHECK(symbols_find(symbols, UINT64_MAX, &symbol));
		CHECK_STRING(symbol.name, "last");
		CHECK_EQUAL(symbol.end, UINT64_MAX);
		symbols_free(symbols);
	}
}

TEST(symbols, one_ends_before_the_last_address)
{
	struct symbols *symbols = symbols_new();

	REQUIRE(symbols);
	symbols_add(symbols, UINT64_MAX - 15, 15, 'T', "all_but_one", NULL);
	symbols_finish(symbols);
	CHECK_STRING(name_at(symbols, UINT64_MAX - 1), "all_but_one");
	CHECK_STRING(name_at(symbols, UINT64_MAX), "");
	symbols_free(symbols);
}

TEST(symbols, reopened_table_accepts_more)
{
	struct symbols *symbols = symbols_new();

	REQUIRE(symbols);
	symbols_add(symbols, 0x2000, 0x10, 't', "second", NULL);
	symbols_finish(symbols);
	symbols_reopen(symbols);
	for (uint64_t i = 0; i < 2000; i++)
		CHECK_EQUAL(symbols_add(symbols, 0x9000 - i, 1, 't', "below_the_last", "module"),
			    0);
	symbols_add(symbols, 0x1000, 0x10, 't', "first", NULL);
	symbols_finish(symbols);
	CHECK_EQUAL(symbols_count(symbols), 2002);
	CHECK_STRING(name_at(symbols, 0x1000), "first");
	CHECK_STRING(name_at(symbols, 0x200f), "second");
	CHECK_STRING(name_at(symbols, 0x9000 - 1999), "below_the_last");
	symbols_free(symbols);
}

/* However long, and whatever they begin with. */
TEST(symbols, are_found_by_their_whole_names)
{
	static const char *const names[] = { "",         "b",         "begin",      "beginni",
					     "beginnin", "beginning", "beginnings", "beginnind" };
	struct symbols *symbols = symbols_new();
	struct symbol symbol;

	REQUIRE(symbols);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		CHECK_EQUAL(symbols_add(symbols, 0x1000 + i, 1, 'T', names[i], NULL), 0);
	symbols_finish(symbols);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		REQUIRE(symbols_find_name(symbols, names[i], &symbol));
		CHECK_EQUAL(symbol.start, 0x1000 + i);
	}
	CHECK(!symbols_find_name(symbols, "be", &symbol));
	CHECK(!symbols_find_name(symbols, "beginninx", &symbol));
	CHECK(!symbols_find_name(symbols, "beginningsx", &symbol));
	symbols_free(symbols);
}

TEST(symbols, empty_table)
{
	struct symbols *symbols = symbols_new();
	struct symbol symbol;

	REQUIRE(symbols);
	symbols_finish(symbols);
	CHECK(!symbols_find(symbols, 1, &symbol));
	CHECK(!symbols_find_name(symbols, "", &symbol));
	symbols_free(symbols);
	symbols_free(NULL);
}
