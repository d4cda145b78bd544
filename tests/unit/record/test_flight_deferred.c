/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/flight_deferred.h"

#include <sys/resource.h>

#include "tests/unit/shim/test.h"

#define SECOND 1000000000ull

static void keep(struct flight_deferred *late, uint64_t time)
{
	const struct sample sample = { .time = time };

	flight_deferred_keep(late, 0, &sample);
}

static bool is_kept(const struct flight_deferred *late, uint64_t time)
{
	const struct sample deferred = { .time = time, .deferred = 1 };
	struct flight_deferred_reader reader;
	bool kept;

	flight_deferred_begin(&reader, late, 0);
	kept = flight_deferred_find(&reader, &deferred) != &deferred;
	flight_deferred_end(&reader);
	return kept;
}

/* A ring is a file of its own: with no descriptor left for it there is none. */
static void set_descriptors(rlim_t most)
{
	struct rlimit limit;

	REQUIRE_EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = most;
	CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(flight_deferred, creating_a_ring_is_retried)
{
	struct flight_deferred late = { 0 };
	struct rlimit before;
	struct ring *ring;

	REQUIRE_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(flight_deferred_init(&late, &ring, 1), 0);
	set_descriptors(3);
	for (uint64_t time = 1; time < FLIGHT_DEFERRED_PAUSE; time += SECOND / 100)
		keep(&late, time);
	CHECK_EQUAL(late.failed, 1);
	CHECK(!is_kept(&late, 1));
	set_descriptors(before.rlim_cur);
	keep(&late, FLIGHT_DEFERRED_PAUSE + 1);
	CHECK(is_kept(&late, FLIGHT_DEFERRED_PAUSE + 1));
	CHECK_EQUAL(late.failed, 1);
	flight_deferred_free(&late);
	ring_destroy(ring);
}
