/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's clock against the host's, from exchanges of messages: what the
 * guest read lies between two readings of ours. That bounds the difference of
 * the clocks from both sides; all exchanges together bound it by their
 * intersection, widened by what the clocks can have drifted since. So the
 * error is known, not estimated, and one quick exchange is worth more than many
 * slow ones.
 *
 * The order of the guest's events is exact in the guest's clock, and kept: as
 * more becomes known of the difference, another one is used for what comes
 * later, and time never runs backwards.
 *
 * Both clocks are CLOCK_MONOTONIC_RAW in ns. One thread at a time.
 */
#ifndef KVMSCOPE_GUEST_AGENT_CLOCK_H
#define KVMSCOPE_GUEST_AGENT_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How much two clocks that nobody sets may drift apart: what Linux expects of
 * an oscillator (MAXFREQ, include/linux/timex.h), 500 ns in a ms.
 */
#define AGENT_CLOCK_DRIFT_PPM 500u

/* Events that are older than so many changes of the difference are converted by the oldest one kept. */
#define AGENT_CLOCK_SEGMENTS 32u

/* From guest time FROM on, host time is guest time + difference, but not outside of FLOOR to CEILING. */
struct agent_clock_segment {
	uint64_t from;
	uint64_t difference;
	uint64_t floor, ceiling;
};

/* All zero: nothing is known. */
struct agent_clock {
	int64_t low, high; /* host time less guest time lay between them */
	uint64_t at;       /* at this host time */
	uint64_t latest;   /* host time that was given out */
	uint64_t jumps; /* exchanges that contradicted those before: the guest's clock was set, or stood still
			 */
	size_t segments; /* in use, the latest last; 0: nothing is known */
	struct agent_clock_segment segment[AGENT_CLOCK_SEGMENTS];
};

/* The guest's clock read GUEST between BEFORE and AFTER (not less) of the host's. */
void agent_clock_exchange(struct agent_clock *clock, uint64_t before, uint64_t after, uint64_t guest);

/* Could that be, by what is known? To ask where the bounds come from something less sure than a message. */
bool agent_clock_agrees(const struct agent_clock *clock, uint64_t before, uint64_t after, uint64_t guest);

/* The host's time for GUEST; right within *ERROR ns. Not before the first exchange. */
uint64_t agent_clock_host_time(struct agent_clock *clock, uint64_t guest, uint64_t *error);

#endif
