/* SPDX-License-Identifier: Apache-2.0 */
/* Valid and invalid lines of perf maps. */
#include "vmm/guest/linux/perf_map.h"

#include <string.h>

#include "tests/unit/shim/test.h"

static struct perf_map_line line;

static bool next(const char *text)
{
	struct span span = span_of(text, strlen(text));

	return perf_map_next(&span, &line);
}

TEST(perf_map, lines_of_v8_and_others)
{
	REQUIRE(next("7f3c3e7c6bc0 194 JS:*hotA /app/hot.js:2:14\n"));
	CHECK_EQUAL(line.start, 0x7f3c3e7c6bc0);
	CHECK_EQUAL(line.length, 0x194);
	CHECK_STRING(line.name, "JS:*hotA /app/hot.js:2:14");
	REQUIRE(next("0x7F00 0x10 py::spin:/a.py\n"));
	CHECK_EQUAL(line.start, 0x7f00);
	CHECK_EQUAL(line.length, 0x10);
	CHECK_STRING(line.name, "py::spin:/a.py");
}

TEST(perf_map, reads_complete_lines_only)
{
	const char *text = "1000 10 a\n2000 10 b\n3000 10 c";
	struct span span = span_of(text, strlen(text));

	CHECK(perf_map_next(&span, &line) && line.start == 0x1000);
	CHECK(perf_map_next(&span, &line) && line.start == 0x2000);
	CHECK(!perf_map_next(&span, &line));
}

TEST(perf_map, invalid_lines_are_skipped)
{
	static const char *const wrong[] = {
		"\n",           "1000\n",
		"1000 10\n",    "1000 10 \n",
		"1000  10 a\n", " 1000 10 a\n",
		"x 10 a\n",     "1000 0 nothing\n",
		"1000 y a\n",   "ffffffffffffffff 2 over_the_end\n",
		"-1 10 a\n",    "11111111111111111 10 too_long\n",
		"0x 10 a\n",    "1000 10\ta\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!next(wrong[i]));
	REQUIRE(next("no\n\n5 6 seven\n"));
	CHECK_STRING(line.name, "seven");
}

TEST(perf_map, control_characters_are_escaped)
{
	REQUIRE(next("1 1 a\x1b[2Jb\tc\xc3\xa9\n"));
	CHECK_STRING(line.name, "a\\x1b[2Jb\\x09c\\xc3\\xa9");
}

TEST(perf_map, long_name_is_truncated)
{
	char text[3000] = "1 1 ";

	memset(text + 4, 'n', 2000);
	strcpy(text + 2004, "\n");
	REQUIRE(next(text));
	CHECK_EQUAL(strlen(line.name), PERF_MAP_NAME_MAX - 1);
	CHECK_STRING(line.name + strlen(line.name) - 4, "n...");
	memset(text + 4, 1, 2000);
	REQUIRE(next(text));
	CHECK(strlen(line.name) < PERF_MAP_NAME_MAX);
	CHECK_STRING(line.name + strlen(line.name) - 7, "\\x01...");
}
