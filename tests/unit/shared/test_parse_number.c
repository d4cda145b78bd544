/* SPDX-License-Identifier: Apache-2.0 */
/* Decimal numbers and numeric options: any text is parsed correctly or refused. */
#include "shared/parse_number.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"

#define UNTOUCHED 42

static void check_read(const char *text, uint64_t most, uint64_t expected, const char *rest)
{
	uint64_t number = UNTOUCHED;
	const char *end = parse_decimal(text, most, &number);

	if (!end || number != expected || strcmp(end, rest) != 0)
		FAIL_TEST("'%s' is read as %llu, with '%s' after it", text,
			  (unsigned long long)number, end ? end : "nothing");
}

static void check_refused(const char *text, uint64_t most)
{
	uint64_t number = UNTOUCHED;

	CHECK(!parse_decimal(text, most, &number));
	CHECK_EQUAL(number, UNTOUCHED);
}

TEST(decimal, number_is_read_up_to_what_is_no_digit)
{
	check_read("0", 0, 0, "");
	check_read("007", 7, 7, "");
	check_read("25ms", 100, 25, "ms");
	check_read("1 2", 100, 1, " 2");
	check_read("0x10", 100, 0, "x10");
	check_read("18446744073709551615", UINT64_MAX, UINT64_MAX, "");
}

TEST(decimal, what_is_no_number_or_too_large_is_refused)
{
	check_refused("", UINT64_MAX);
	check_refused("x", UINT64_MAX);
	check_refused("-1", UINT64_MAX);
	check_refused("+1", UINT64_MAX);
	check_refused(" 1", UINT64_MAX);
	check_refused("8", 7);
	check_refused("4294967296", UINT32_MAX);
	check_refused("18446744073709551616", UINT64_MAX);
	check_refused("99999999999999999999999999", UINT64_MAX);
}

/* One of each subcommand that has numbers. */
TEST(decimal, options_report_their_valid_numbers)
{
	program_refuses("run --cpus 65", "--cpus 65: it must be a number from 1 to 64");
	program_refuses("run --cpus 2x", "--cpus 2x: it must be a number");
	program_refuses("run --timeout -1", "--timeout -1: it must be a number");
	program_refuses("run --trigger stuck=100s",
			"stuck=100s: it must be a number from 20 to 3600000");
	program_refuses("demo --seconds 5x", "--seconds 5x: it must be a number from 1 to 3600");
	program_refuses("demo --seconds 4294967297", "--seconds 4294967297: it must be a number");
	program_refuses("attach --vm +3", "--vm +3: it must be a number from 1 to 2147483647");
	program_refuses("report --limit 0", "--limit 0: it must be a number from 1 to 4294967295");
	program_refuses("export --vcpu 2147483648", "it must be a number from 0 to 2147483647");
	program_refuses("ctl freq 99Hz", "freq 99Hz: it must be a number from 1 to 10000");
}
