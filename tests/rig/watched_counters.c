/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/watched_counters.h"

#include <errno.h>
#include <stdio.h>

#include "shared/sample_record.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

struct counter {
	uint64_t address, value, hits;
	uint64_t missed; /* numbers without a sample */
	uint64_t gaps;   /* positions where values and numbers differ by different amounts */
};

struct counters {
	struct counter each[2];
	uint64_t lost; /* samples, according to the recording */
};

static int count_loss(void *context, uint64_t count)
{
	((struct counters *)context)->lost += count;
	return 0;
}

static int count_hit(void *context, const struct perf_data_sample *sample)
{
	const struct perf_data_hit_values *values = &sample->values;
	struct counter *counter;
	uint64_t missed;

	if (!sample->event)
		return 0;
	if (sample->cpu > 1 || !sample->has_values)
		return -EINVAL;
	counter = &((struct counters *)context)->each[sample->cpu];
	missed = values->hits - counter->hits - 1;
	/* The first hit has no previous value. */
	if (counter->hits)
		counter->gaps += values->before != counter->value + missed ||
				 sample->address != counter->address;
	if (counter->hits || missed)
		counter->gaps += values->after != values->before + 1 ||
				 values->flags != (SAMPLE_HIT_BEFORE | SAMPLE_HIT_AFTER);
	else
		counter->gaps += values->flags != SAMPLE_HIT_AFTER;
	counter->missed += missed;
	counter->address = sample->address;
	counter->value = values->after;
	counter->hits = values->hits;
	return 0;
}

void watched_counters_check(const char *what, const char *directory, unsigned long long hits)
{
	struct counters all = { 0 };
	const struct perf_data_events events = { .sample = count_hit,
						 .lost = count_loss,
						 .context = &all };
	const struct counter *counters = all.each;
	char path[160];

	snprintf(path, sizeof(path), "%s/perf.data", directory);
	recording_replay(path, &events);
	printf("%s: the per-CPU counter was written %llu times on vCPU 0 at %#llx, %llu times on vCPU 1 at %#llx\n",
	       what, (unsigned long long)counters[0].hits, (unsigned long long)counters[0].address,
	       (unsigned long long)counters[1].hits, (unsigned long long)counters[1].address);
	CHECK(counters[0].hits > 20 && counters[1].hits > 20);
	CHECK(counters[0].address != counters[1].address);
	CHECK_EQUAL(counters[0].gaps, 0);
	CHECK_EQUAL(counters[1].gaps, 0);
	CHECK(counters[0].missed + counters[1].missed <= all.lost);
	/* Each vCPU may have one more hit between the count and its end. */
	if (hits)
		CHECK(counters[0].hits + counters[1].hits - hits <= 2);
}
