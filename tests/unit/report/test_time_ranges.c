/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/time_ranges.h"

#include <errno.h>

#include "tests/unit/shim/test.h"

#define S 1000000000ull

/* Which of the seconds 0 to 9 after 10 s are selected, of a recording from 10 s to 20 s. */
static void check_selected(const char *text, const char *expected)
{
	struct time_ranges ranges;
	char selected[11] = "";

	REQUIRE_EQUAL(time_ranges_parse(&ranges, text), 0);
	time_ranges_resolve(&ranges, 10 * S, 20 * S);
	for (unsigned int i = 0; i < 10; i++)
		selected[i] = time_ranges_have(&ranges, (10 + i) * S) ? (char)('0' + i) : '-';
	CHECK_STRING(selected, expected);
}

TEST(time_ranges, select_by_seconds)
{
	check_selected("12,14", "--234-----");
	check_selected("12.5,14.000000001", "---34-----");
	check_selected("12.000000001,13.999999999", "---3------");
	check_selected("17,", "-------789");
	check_selected(",12", "012-------");
	check_selected(",", "0123456789");
	check_selected("11,12 15,15 18,", "-12--5--89");
}

/* A part ends 1 ns before the next one begins, the last one includes the end. */
TEST(time_ranges, select_by_percentages)
{
	check_selected("10%/2", "-1--------");
	check_selected("20%", "01--------");
	check_selected("20%-50%", "--234-----");
	check_selected("90%-100%", "---------9");
	check_selected("10%/1,10%/3", "0-2-------");
	check_selected("0%-10%, 55%-75%", "0-----67--");
}

TEST(time_ranges, have_the_last_sample_and_samples_without_time)
{
	struct time_ranges ranges, none = { 0 };

	REQUIRE_EQUAL(time_ranges_parse(&ranges, "10%/10"), 0);
	time_ranges_resolve(&ranges, 10 * S, 20 * S);
	CHECK(time_ranges_have(&ranges, 20 * S) && !time_ranges_have(&ranges, 20 * S + 1));
	CHECK(time_ranges_have(&ranges, 0) && time_ranges_have(&none, 5));
}

TEST(time_ranges, wrong_syntax_is_refused)
{
	static const char *const wrong[] = {
		"",       "5",     "a,b",           "1,2,3",    "2,1",
		"1e1,",   "-1,",   "1.0123456789,", "10",       "%",
		"10%/11", "10%/0", "50%-20%",       "10%-110%", "10%/2/3",
		"10%x",   "0x5%",  "1,2%",          "10%/",     "10%-",
		"1 2",
	};
	struct time_ranges ranges;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (time_ranges_parse(&ranges, wrong[i]) != -EINVAL)
			FAIL_TEST("\"%s\" is accepted", wrong[i]);
}
