/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples per second from a ring through the collector into a perf.data file, with callchains of 16
 * entries, with and without compression. The writer waits while the ring is full, so no sample is
 * lost.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/ring.h"
#include "shared/sample_record.h"
#include "tests/bench/bench.h"
#include "vmm/record/collector.h"

#define SAMPLES   bench_size(300000, 60000)
#define DEPTH     16
#define RING_SIZE (1ul << 20)
#define OUTPUT    "build/bench/recording.data"
#define RUNS_MAX  3
#define RUNS      bench_size(RUNS_MAX, 1)

static bool no_registers(void *context, struct guest_registers *registers)
{
	(void)context;
	(void)registers;
	return false;
}

static void fill(struct sample *sample, uint64_t number)
{
	*sample = (struct sample){ .time = bench_time(CLOCK_MONOTONIC_RAW),
				   .period = 1000000,
				   .host_tid = 1,
				   .pid = SAMPLE_TASK_UNKNOWN,
				   .tid = SAMPLE_TASK_UNKNOWN,
				   .kernel_depth = DEPTH - 4,
				   .user_depth = 4 };
	for (int i = 0; i < DEPTH; i++)
		sample->callchain[i] = (i < DEPTH - 4 ? 0xffffffff81000000 : 0x400000) +
				       (number * 31 + i * 977) % 65536;
	sample->rip = sample->callchain[0];
}

static void write_samples(struct ring *ring)
{
	struct ring_statistics statistics;

	for (uint64_t i = 0; i < SAMPLES; i++) {
		struct sample *sample;

		if (i % 512 == 0) {
			ring_flush(ring);
			do
				ring_statistics(ring, &statistics);
			while (statistics.unread > RING_SIZE / 1024 && !sched_yield());
		}
		sample = ring_reserve(ring, RECORD_SAMPLE, sample_size(DEPTH));
		if (sample)
			fill(sample, i);
		ring_commit(ring, sample);
	}
	ring_flush(ring);
}

/* Samples per second; negative on an error. */
static double record(unsigned int compression)
{
	struct guest_view view = { 0 };
	struct ring *ring;
	struct collector_options options = {
		.rings = &ring,
		.ring_count = 1,
		.view = &view,
		.registers = no_registers,
		.output = { .path = OUTPUT,
			    .frequency = 1000,
			    .callchains = true,
			    .compression = compression,
			    .vcpus = 1,
			    .vmm_pid = getpid(),
			    .command_line = "bench" },
	};
	struct collector_statistics statistics;
	struct collector *collector;
	uint64_t begin;
	int error;

	if (ring_create(&ring, RING_SIZE) || collector_start(&collector, &options))
		return -1;
	begin = bench_time(CLOCK_MONOTONIC);
	write_samples(ring);
	error = collector_stop(collector, &statistics);
	ring_destroy(ring);
	if (error)
		return -1;
	if (statistics.samples != SAMPLES || statistics.lost) {
		error_set(-EIO, "%llu of %d samples are in the file, %llu were lost",
			  (unsigned long long)statistics.samples, SAMPLES,
			  (unsigned long long)statistics.lost);
		return -1;
	}
	return SAMPLES * 1e9 / (bench_time(CLOCK_MONOTONIC) - begin);
}

static int measure(const char *what, unsigned int compression)
{
	double rates[RUNS_MAX];

	for (int run = 0; run < RUNS; run++) {
		rates[run] = record(compression);
		if (rates[run] < 0) {
			fprintf(stderr, "recording failed: %s\n", error_message());
			return 1;
		}
	}
	bench_print(what, bench_median(rates, RUNS) / 1000, "k/s");
	return 0;
}

int main(void)
{
	return measure("recording: samples through ring and collector to perf.data", 0) ||
	       measure("recording: samples to compressed perf.data (zstd 1)", 1);
}
