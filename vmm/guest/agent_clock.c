// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/agent_clock.h"

#include <assert.h>
#include <string.h>

struct bounds {
	int64_t low, high;
};

/* Differences are modulo 2^64: a hostile guest's times may be anything. */
static struct bounds bounds_of(uint64_t before, uint64_t after, uint64_t guest)
{
	return (struct bounds){ (int64_t)(before - guest), (int64_t)(after - guest) };
}

static int64_t add_saturated(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return b < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

/* What is known for the host's TIME, before or behind the latest exchange. */
static struct bounds known(const struct agent_clock *clock, uint64_t time)
{
	uint64_t distance = time > clock->at ? time - clock->at : clock->at - time;
	int64_t drift = (int64_t)(distance / (1000000 / AGENT_CLOCK_DRIFT_PPM)) + 1;

	return (struct bounds){ add_saturated(clock->low, -drift), add_saturated(clock->high, drift) };
}

static struct bounds intersection(struct bounds a, struct bounds b)
{
	return (struct bounds){ a.low > b.low ? a.low : b.low, a.high < b.high ? a.high : b.high };
}

bool agent_clock_agrees(const struct agent_clock *clock, uint64_t before, uint64_t after, uint64_t guest)
{
	struct bounds both = bounds_of(before, after, guest);

	if (clock->segments)
		both = intersection(both, known(clock, after));
	return both.low <= both.high;
}

/* How far a difference may be from the truth that lies in BOUNDS. */
static uint64_t error_of(struct bounds bounds, uint64_t difference)
{
	uint64_t below = difference - (uint64_t)bounds.low, above = (uint64_t)bounds.high - difference;

	if ((int64_t)difference < bounds.low)
		below = 0;
	if ((int64_t)difference > bounds.high)
		above = 0;
	return below > above ? below : above;
}

static const struct agent_clock_segment *segment_of(const struct agent_clock *clock, uint64_t guest)
{
	size_t i = clock->segments - 1;

	while (i && guest < clock->segment[i].from)
		i--;
	return &clock->segment[i];
}

static uint64_t convert(const struct agent_clock_segment *segment, uint64_t guest)
{
	uint64_t time = guest + segment->difference;

	if (time < segment->floor)
		return segment->floor;
	return time < segment->ceiling ? time : segment->ceiling;
}

/*
 * Times behind LAST's end go on from where those that were given out ended; those
 * before it that are still to come do not go beyond.
 */
static void join(struct agent_clock_segment *last, struct agent_clock_segment *next, uint64_t latest)
{
	uint64_t end = convert(last, next->from);

	next->floor = end < latest ? end : latest;
	last->ceiling = convert(next, next->from);
}

/* What the guest's clock shows from GUEST on is converted by the middle of what is known. */
static void begin_segment(struct agent_clock *clock, uint64_t guest, bool jumped)
{
	uint64_t width = (uint64_t)clock->high - (uint64_t)clock->low;
	struct agent_clock_segment next = { .from = guest,
					    .difference = (uint64_t)clock->low + width / 2,
					    .ceiling = UINT64_MAX };

	if (clock->segments && !jumped)
		join(&clock->segment[clock->segments - 1], &next, clock->latest);
	if (clock->segments == AGENT_CLOCK_SEGMENTS)
		memmove(clock->segment, clock->segment + 1, --clock->segments * sizeof(clock->segment[0]));
	clock->segment[clock->segments++] = next;
}

/* Is it worth another segment? Where the error would be halved at least. */
static bool is_better(const struct agent_clock *clock)
{
	struct bounds bounds = { clock->low, clock->high };
	uint64_t width = (uint64_t)clock->high - (uint64_t)clock->low;

	return !clock->segments ||
	       error_of(bounds, clock->segment[clock->segments - 1].difference) > width + width / 8;
}

void agent_clock_exchange(struct agent_clock *clock, uint64_t before, uint64_t after, uint64_t guest)
{
	struct bounds found = bounds_of(before, after, guest), both = found;
	bool jumped;

	assert(before <= after);
	if (clock->segments)
		both = intersection(found, known(clock, after));
	jumped = both.low > both.high;
	if (jumped) {
		clock->jumps++;
		both = found;
	}
	clock->low = both.low;
	clock->high = both.high;
	clock->at = after;
	if (jumped || is_better(clock))
		begin_segment(clock, guest, jumped);
}

uint64_t agent_clock_host_time(struct agent_clock *clock, uint64_t guest, uint64_t *error)
{
	uint64_t time;

	assert(clock->segments);
	time = convert(segment_of(clock, guest), guest);
	if (time > clock->latest)
		clock->latest = time;
	*error = error_of(known(clock, time), time - guest);
	return time;
}
