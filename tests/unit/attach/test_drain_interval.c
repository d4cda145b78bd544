/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals of drains: no backend overflows. */
#include "tests/unit/shim/test.h"
#include "vmm/attach/attach_state.h"

TEST(drain_interval, has_as_many_samples_at_any_frequency)
{
	CHECK_EQUAL(drain_interval(1, 4, 0), 200);
	CHECK_EQUAL(drain_interval(100, 4, 0), 200);
	CHECK_EQUAL(drain_interval(200, 4, 0), 100);
	CHECK_EQUAL(drain_interval(1000, 4, 0), 20);
	CHECK_EQUAL(drain_interval(10000, 4, 0), 20);
	CHECK_EQUAL(drain_interval(1000, 4, 1000), 20);
}

TEST(drain_interval, fills_at_most_half_of_the_room)
{
	CHECK_EQUAL(drain_interval(1000, 64, 900), 7);
	CHECK_EQUAL(drain_interval(1000, 128, 900), 3);
	CHECK_EQUAL(drain_interval(99, 1024, 900), 4);
	CHECK_EQUAL(drain_interval(10000, 1024, 900), 1);
	CHECK_EQUAL(drain_interval(1000, 0, 900), 20);
}
