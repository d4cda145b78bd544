/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/history.h"

#include <stdlib.h>

#include "tests/unit/shim/test.h"

/* COUNT states at the times 10, 20 and so on; the caller frees them. */
static struct history *make(size_t count, struct history **newest)
{
	struct history *states = calloc(count, sizeof(*states));

	*newest = NULL;
	for (size_t i = 0; i < count; i++)
		history_add(newest, &states[i], 10 * (i + 1));
	return states;
}

TEST(history, has_the_state_of_any_time)
{
	struct history *newest, *states = make(1000, &newest);

	CHECK(history_at(newest, 0) == states);
	CHECK(history_at(newest, 9) == states);
	for (size_t i = 0; i < 1000; i++) {
		CHECK(history_at(newest, 10 * (i + 1)) == &states[i]);
		CHECK(history_at(newest, 10 * (i + 1) + 9) == &states[i]);
	}
	free(states);
	CHECK(!history_at(NULL, 5));
}

TEST(history, of_states_at_one_time_the_last_one_holds)
{
	struct history states[100], *newest = NULL;

	for (size_t i = 0; i < 100; i++)
		history_add(&newest, &states[i], 7);
	CHECK(history_at(newest, 7) == &states[99]);
	CHECK(history_at(newest, 6) == &states[0]);
}

/* The most steps to any of COUNT states. */
static size_t longest_way(size_t count)
{
	struct history *newest, *states = make(count, &newest);
	size_t longest = 0;

	for (size_t i = 0; i < count; i++) {
		const struct history *state = newest;
		size_t steps = 0;

		for (; state->time > states[i].time && state->older; steps++)
			state = history_step(state, states[i].time);
		longest = steps > longest ? steps : longest;
	}
	free(states);
	return longest;
}

TEST(history, twice_the_states_are_a_few_more_steps)
{
	size_t steps = longest_way(50000);

	CHECK(steps < 60);
	CHECK(longest_way(100000) <= steps + 3);
}
