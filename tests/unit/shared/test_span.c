/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/span.h"
#include "tests/unit/shim/test.h"

TEST(span, reads_inside_and_refuses_outside)
{
	const uint8_t bytes[] = { 1, 2, 3, 4, 5 };
	struct span span = span_of(bytes, sizeof(bytes));
	uint32_t value = 77;

	CHECK(span_u32(span, 1, &value));
	CHECK_EQUAL(value, 0x05040302);
	CHECK(!span_u32(span, 2, &value));
	CHECK(!span_u32(span, UINT64_MAX - 1, &value));
	CHECK_EQUAL(value, 0x05040302);
	CHECK(span_contains(span, 5, 0));
	CHECK(!span_contains(span, 0, UINT64_MAX));
}

TEST(span, string_must_end_inside)
{
	struct span span = span_of("ab\0cd", 5);

	CHECK_STRING(span_string(span, 0), "ab");
	CHECK(!span_string(span, 3));
	CHECK(!span_string(span, 5));
}
