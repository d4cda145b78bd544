/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a recording that --time selects, in perf's syntax. Any thread. */
#ifndef KVMSCOPE_REPORT_TIME_RANGES_H
#define KVMSCOPE_REPORT_TIME_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIME_RANGES_MAX 32

struct time_range {
	uint64_t start, end; /* ns of the samples' clock, both included; end 0: open */
	double from, to;     /* of percentages: parts of the recording, 0 to 1 */
};

/* All zero: everything is selected. */
struct time_ranges {
	struct time_range list[TIME_RANGES_MAX];
	size_t count;
	bool parts;       /* percentages: START and END are unset until they are resolved */
	const char *text; /* what was parsed; NULL */
};

/*
 * Reads TEXT as perf report(1) does: "1.5,2" (seconds), "1.5,", ",2", several of them separated by
 * spaces; "10%-20%", "10%/2" (the second tenth), several of them separated by commas. RANGES
 * points to TEXT. -EINVAL with a message.
 */
int time_ranges_parse(struct time_ranges *ranges, const char *text);

/* Turns percentages into times of a recording with samples from FIRST to LAST. */
void time_ranges_resolve(struct time_ranges *ranges, uint64_t first, uint64_t last);

/* As in perf, samples without a time (0) are in every range. */
bool time_ranges_have(const struct time_ranges *ranges, uint64_t time);

#endif
