/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/storm_truth.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"

#define MOMENTS_MAX 65536

struct moment {
	uint64_t time;
	enum { WRITE, STOP, START } what;
	uint64_t value, hits; /* of a write */
};

struct storm {
	unsigned int event;
	size_t count;
	struct moment moments[MOMENTS_MAX];
};

/* The number of writes by result. */
struct tally {
	unsigned long sampled, suppressed, lost, stops;
};

static int add(struct storm *storm, unsigned int event, struct moment moment)
{
	if (event != storm->event)
		return 0;
	if (storm->count == MOMENTS_MAX)
		return -1;
	storm->moments[storm->count++] = moment;
	return 0;
}

static int add_sample(void *context, const struct perf_data_sample *sample)
{
	return add(
		context, sample->event,
		(struct moment){ sample->time, WRITE, sample->values.after, sample->values.hits });
}

static int add_throttled(void *context, uint16_t event, bool stopped, uint64_t time)
{
	return add(context, event, (struct moment){ .time = time, .what = stopped ? STOP : START });
}

static int compare(const void *left, const void *right)
{
	uint64_t a = ((const struct moment *)left)->time, b = ((const struct moment *)right)->time;

	return (a > b) - (a < b);
}

/*
 * UP_TO writes happened after the last sample: they are throttled if there was a THROTTLE in
 * between.
 */
static void count_gap(struct tally *tally, unsigned long gap, bool throttled)
{
	tally->suppressed += throttled ? gap : 0;
	tally->lost += throttled ? 0 : gap;
}

static struct tally count(const struct storm *storm, unsigned long written)
{
	struct tally tally = { 0 };
	uint64_t last = 0, hits = 0;
	/* A watch that waits for its address is reported as throttled. */
	bool stopped = false, throttled = false;

	for (size_t i = 0; i < storm->count; i++) {
		const struct moment *moment = &storm->moments[i];

		if (moment->what != WRITE) {
			/* The last event is the removal of the watch. */
			tally.stops += moment->what == STOP && !stopped && i + 1 < storm->count;
			stopped = moment->what == STOP;
			throttled |= stopped;
			continue;
		}
		CHECK(!stopped);
		CHECK(moment->value > last);
		CHECK_EQUAL(moment->hits, ++hits);
		count_gap(&tally, moment->value - last - 1, throttled);
		last = moment->value;
		tally.sampled++;
		throttled = false;
	}
	count_gap(&tally, written - last, throttled);
	return tally;
}

/* perf's own count of the file's records. */
static unsigned long perf_count(const char *path, const char *record)
{
	struct rig_result result;
	unsigned long number;

	rig_run_here(&result, 300,
		     "perf report --stats -i %s 2> /dev/null | sed -n 's/^ *%s events: *//p'", path,
		     record);
	number = strtoul(result.output, NULL, 10);
	rig_result_free(&result);
	return number;
}

static bool read_storm(struct storm *storm, const char *path)
{
	struct perf_data_events events = { .sample = add_sample,
					   .throttled = add_throttled,
					   .context = storm };

	bool ok = recording_replay(path, &events);

	qsort(storm->moments, storm->count, sizeof(storm->moments[0]), compare);
	return ok;
}

void storm_check(const char *path, unsigned int event, unsigned long written)
{
	static struct storm storm;
	struct tally tally;

	storm.event = event;
	storm.count = 0;
	REQUIRE(read_storm(&storm, path));
	tally = count(&storm, written);
	printf("%lu writes: %lu sampled, %lu throttled in %lu intervals, %lu missing\n", written,
	       tally.sampled, tally.suppressed, tally.stops, tally.lost);
	CHECK(written > 0);
	CHECK_EQUAL(tally.lost, 0);
	CHECK_EQUAL(tally.sampled + tally.suppressed, written);
	CHECK(tally.sampled && tally.suppressed > tally.sampled);
	CHECK(tally.stops);
	CHECK(perf_count(path, "THROTTLE") >= tally.stops);
	CHECK(perf_count(path, "UNTHROTTLE") >= tally.stops);
}
