/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_timeline.h"

#include "tests/unit/shim/test.h"

#define SECOND 1000000000ull

/* Some other clock's, for the same moment. */
static uint64_t guest_time(uint64_t host)
{
	return host - 50 * SECOND;
}

/* Two exchanges from 1000 s on. */
static void begin(struct agent_timeline *timeline)
{
	const struct ring_options options = { .size = 1 << 16 };

	*timeline = (struct agent_timeline){ 0 };
	REQUIRE_EQUAL(ring_create_with(&timeline->ring, &options), 0);
	agent_timeline_begin(timeline);
	for (uint64_t at = 1000 * SECOND; at <= 1001 * SECOND; at += SECOND) {
		const struct agent_clock_exchange exchange = { .before = at - 1000,
							       .after = at + 1000,
							       .guest = guest_time(at) };

		CHECK_EQUAL(agent_clock_add(&timeline->clock, &exchange), AGENT_CLOCK_ACCEPTED);
	}
}

static void end(struct agent_timeline *timeline)
{
	agent_timeline_free(timeline);
	ring_destroy(timeline->ring);
}

/* An idle processor reports its loss with its next event, after many exchanges of clocks. */
TEST(agent_timeline, a_late_loss_does_not_end_the_session)
{
	struct sideband_lost lost = {
		.head = { .size = sizeof(lost),
			  .type = SIDEBAND_LOST,
			  .time = guest_time(900 * SECOND) },
		.count = 3,
	};
	const struct sideband_lost *reported;
	const struct ring_record *record;
	struct agent_timeline timeline;

	begin(&timeline);
	agent_timeline_add(&timeline, &lost.head, guest_time(920 * SECOND));
	CHECK(!timeline.broken);
	ring_flush(timeline.ring);
	record = ring_read(timeline.ring);
	REQUIRE(record);
	reported = (const void *)record->payload;
	CHECK_EQUAL(reported->count, 3);
	CHECK(reported->head.time <= 900 * SECOND);
	CHECK(reported->until - reported->head.time_error >= 920 * SECOND);
	CHECK(reported->until < 1000 * SECOND);
	ring_read_done(timeline.ring);
	end(&timeline);
}

/* Of an event it would not be known what came before it. */
TEST(agent_timeline, an_event_of_long_ago_has_no_place)
{
	struct sideband_comm comm = { .head = { .size = sizeof(comm), .type = SIDEBAND_COMM } };
	struct agent_timeline timeline;

	begin(&timeline);
	agent_timeline_add(&timeline, &comm.head, guest_time(920 * SECOND));
	CHECK(timeline.broken);
	end(&timeline);
}
