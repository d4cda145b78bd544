/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_clock.h"

#include <assert.h>
#include <string.h>

#define MILLION 1000000u

/* ns: half of the error bound is left for the difference to the next exchange. */
#define FIRST_ERROR_MAX (AGENT_CLOCK_ERROR_MAX / 2)
/* ns: rounding error of a bound. */
#define ROUNDING 8u

/* Largest error between two exchanges: half of the one's width, a step, the other's width, the
 * drift in two seconds, and UNSEEN. */
#define WORST(width, unseen)                                                                       \
	((width) / 2 + AGENT_CLOCK_STEP_MAX + (width) +                                            \
	 2000000000u / (MILLION / AGENT_CLOCK_DRIFT_PPM) + (unseen))
_Static_assert(WORST(AGENT_CLOCK_WIDTH_MAX, 0) <= AGENT_CLOCK_ERROR_MAX &&
		       WORST(AGENT_CLOCK_WIDTH_MAX - AGENT_CLOCK_KVM_DRIFT,
			     AGENT_CLOCK_KVM_DRIFT) <= AGENT_CLOCK_ERROR_MAX,
	       "events between two exchanges have a known time");

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t more(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t middle(const struct agent_clock_exchange *exchange)
{
	return exchange->before + (exchange->after - exchange->before) / 2;
}

static const struct agent_clock_exchange *latest(const struct agent_clock *clock)
{
	return &clock->exchanges[clock->count - 1];
}

/* Smallest amount by which the clocks moved against each other. */
static uint64_t step(const struct agent_clock_exchange *from, const struct agent_clock_exchange *to)
{
	uint64_t passed = to->guest - from->guest;

	return larger(less(passed, to->after - from->before),
		      less(to->before - from->after, passed));
}

static void append(struct agent_clock *clock, const struct agent_clock_exchange *exchange)
{
	if (clock->count == AGENT_CLOCK_EXCHANGES)
		memmove(clock->exchanges, clock->exchanges + 1,
			--clock->count * sizeof(clock->exchanges[0]));
	clock->exchanges[clock->count++] = *exchange;
}

static bool contradicts(const struct agent_clock *clock,
			const struct agent_clock_exchange *exchange)
{
	return clock->count && (exchange->guest <= latest(clock)->guest ||
				step(latest(clock), exchange) > AGENT_CLOCK_STEP_MAX);
}

uint64_t agent_clock_width_max(const struct agent_clock *clock)
{
	return AGENT_CLOCK_WIDTH_MAX - clock->unseen;
}

enum agent_clock_result agent_clock_add(struct agent_clock *clock,
					const struct agent_clock_exchange *exchange)
{
	assert(exchange->before <= exchange->after);
	assert(!clock->count || latest(clock)->after <= exchange->before);
	if (contradicts(clock, exchange))
		return AGENT_CLOCK_JUMPED;
	if (exchange->after - exchange->before > agent_clock_width_max(clock))
		return AGENT_CLOCK_IMPRECISE;
	append(clock, exchange);
	return AGENT_CLOCK_ACCEPTED;
}

bool agent_clock_end(struct agent_clock *clock, uint64_t now, uint64_t guest)
{
	struct agent_clock_exchange end = { .after = now, .guest = guest };

	if (!clock->count || guest <= latest(clock)->guest || now < latest(clock)->after)
		return false;
	end.before = latest(clock)->after;
	if (step(latest(clock), &end) > AGENT_CLOCK_STEP_MAX)
		return false;
	append(clock, &end);
	return true;
}

bool agent_clock_covers(const struct agent_clock *clock, uint64_t guest)
{
	return clock->count && guest <= latest(clock)->guest;
}

static uint64_t drift_in(uint64_t time)
{
	return time / (MILLION / AGENT_CLOCK_DRIFT_PPM) + 1;
}

/* Extrapolates from one exchange. */
static uint64_t time_by(const struct agent_clock_exchange *exchange, uint64_t guest,
			uint64_t *error)
{
	uint64_t after = less(guest, exchange->guest), before = less(exchange->guest, guest);

	*error = (exchange->after - exchange->before) / 2 + drift_in(after + before);
	return more(less(middle(exchange), before), after);
}

/* Interpolates linearly, which keeps the order of guest times. */
static uint64_t line_between(const struct agent_clock_exchange *from,
			     const struct agent_clock_exchange *to, uint64_t guest)
{
	return middle(from) + (uint64_t)((unsigned __int128)(middle(to) - middle(from)) *
					 (guest - from->guest) / (to->guest - from->guest));
}

struct bounds {
	uint64_t low, high;
};

/* Bounds of the host time at GUEST. The difference of the clocks is limited by the first exchange
 * plus drift, and by the second plus drift, or lies between the two; UNSEEN widens it.
 */
static struct bounds bounds_between(const struct agent_clock_exchange *from,
				    const struct agent_clock_exchange *to, uint64_t guest,
				    uint64_t unseen)
{
	uint64_t passed = guest - from->guest, left = to->guest - guest;
	uint64_t low = smaller(less(more(from->before, passed), drift_in(passed)),
			       less(to->before, more(left, drift_in(left))));
	uint64_t high = larger(more(more(from->after, passed), drift_in(passed)),
			       more(less(to->after, left), drift_in(left)));

	return (struct bounds){ .low = less(low, unseen), .high = more(high, unseen) };
}

/* The result lies between the two exchanges, as no clock ran backwards. */
static uint64_t time_between(const struct agent_clock_exchange *from,
			     const struct agent_clock_exchange *to, uint64_t guest, uint64_t unseen,
			     uint64_t *error)
{
	struct bounds bounds = bounds_between(from, to, guest, unseen);
	uint64_t line = line_between(from, to, guest);

	*error = larger(less(line, larger(bounds.low, from->before)),
			less(smaller(bounds.high, to->after), line));
	return line;
}

uint64_t agent_clock_host_time(const struct agent_clock *clock, uint64_t guest, uint64_t *error)
{
	const struct agent_clock_exchange *exchanges = clock->exchanges;
	size_t i = clock->count;
	uint64_t time;

	assert(clock->count);
	while (i && guest <= exchanges[i - 1].guest)
		i--;
	if (i && i < clock->count)
		return time_between(&exchanges[i - 1], &exchanges[i], guest, clock->unseen, error);
	time = time_by(&exchanges[i ? i - 1 : 0], guest, error);
	*error += clock->unseen;
	return time;
}

static uint64_t error_at(const struct agent_clock_exchange *from,
			 const struct agent_clock_exchange *to, uint64_t guest)
{
	struct bounds bounds = bounds_between(from, to, guest, 0);
	uint64_t line = line_between(from, to, guest);

	return larger(less(line, bounds.low), less(bounds.high, line));
}

/* The bound on each side is the larger of two linear functions, so its maximum is at an end. */
static uint64_t error_between(const struct agent_clock_exchange *from,
			      const struct agent_clock_exchange *to)
{
	return larger(error_at(from, to, from->guest), error_at(from, to, to->guest)) + ROUNDING;
}

bool agent_clock_usable(const struct agent_clock *clock,
			const struct agent_clock_exchange *exchange)
{
	if (!clock->count)
		return (exchange->after - exchange->before) / 2 + clock->unseen <= FIRST_ERROR_MAX;
	return !contradicts(clock, exchange) &&
	       error_between(latest(clock), exchange) + clock->unseen <= AGENT_CLOCK_ERROR_MAX;
}

void agent_clock_add_imprecise(struct agent_clock *clock,
			       const struct agent_clock_exchange *exchange)
{
	assert(agent_clock_usable(clock, exchange));
	append(clock, exchange);
}
