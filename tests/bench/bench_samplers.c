/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a sample for the guest of kvmscope run: kicks and the BPF program sample the same
 * vCPU at the same time, at 99 and 1000 Hz; BPF's frequency is lower by 1 Hz, so that each follows
 * the other equally closely during the one-second window. The guest measures the cost as in
 * bench_attach: gaps that contain exactly one sample. An argument names the KVM.
 */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/bench/gap_guest.h"
#include "vmm/attach/attachment.h"

#define RUNS_MAX 6
#define RUNS     bench_size(RUNS_MAX, 1)
#define TRIES    5 /* tries for a run, for a busy machine */

static const char *kvm = "local KVM";
static struct sampled_guest guest;
static struct attach *attach;
static struct gap_window window;
static int64_t ahead = GAP_AHEAD_UNKNOWN; /* the guest's TSC */

/* For each gap of the window, the number of samples in it. */
static unsigned int kicks[GAP_WINDOW_MAX], bpfs[GAP_WINDOW_MAX], all[GAP_WINDOW_MAX];

static bool start(void)
{
	const struct sampled_guest_options options = {
		.code = gap_guest_code,
		.size = sizeof(gap_guest_code),
		.cpl = 3,
		.cpus = 1,
		.clock = SAMPLING_CLOCK_CPU,
		.frequency = 1000,
		.paused = true,
	};
	const struct attach_options own = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.frequency = 1000,
		.callchains = true,
		.ring_size = 2ul << 20,
	};

	if (sampled_guest_start(&guest, &options))
		return false;
	sampled_guest_use(&guest, 1000000); /* KVM has recorded the vCPU's thread */
	return !attach_open(&attach, &own) && !attach_start(attach);
}

/* Samples of the host do not count for the sampler. */
static void count_samples(struct ring *ring, unsigned int *counts)
{
	const struct ring_record *record;
	size_t gap;

	while ((record = ring_read(ring))) {
		const struct sample *sample = (const void *)record->payload;

		if (record->type != RECORD_SAMPLE || !gap_window_find(&window, sample->time, &gap))
			continue;
		all[gap]++;
		counts[gap] += !(sample->flags & SAMPLE_HOST);
	}
	ring_read_done(ring);
}

static void set_frequency(unsigned int frequency)
{
	if (sampled_guest_set_frequency(&guest, frequency) ||
	    attach_set_frequency(attach, frequency ? frequency - 1 : 0)) {
		fprintf(stderr, "%s\n", error_message());
		exit(1);
	}
}

static void measure_window(unsigned int frequency)
{
	size_t count;

	memset(kicks, 0, sizeof(kicks));
	memset(bpfs, 0, sizeof(bpfs));
	memset(all, 0, sizeof(all));
	set_frequency(frequency);
	gap_guest_measure(&guest, &ahead, &window);
	set_frequency(0);
	count_samples(guest.rings[0], kicks);
	count_samples(attach_rings(attach, &count)[0], bpfs);
}

/* The median of gaps with exactly one sample, from COUNTS, us; 0: fewer than LEAST. */
static double median_of(const unsigned int *counts, size_t least)
{
	static double costs[GAP_WINDOW_MAX];
	size_t count = 0;

	for (size_t i = 0; i < window.count; i++)
		if (counts[i] == 1 && all[i] == 1)
			costs[count++] = (double)window.gaps[i].length / 1e3;
	return count < least ? 0 : bench_median(costs, count);
}

static bool measure_run(unsigned int frequency, double *by_kicks, double *by_bpf)
{
	for (int i = 0; i < TRIES; i++) {
		measure_window(frequency);
		*by_kicks = median_of(kicks, frequency / 3);
		*by_bpf = median_of(bpfs, frequency / 3);
		if (*by_kicks > 0 && *by_bpf > 0)
			return true;
	}
	return false;
}

static void measure(unsigned int frequency)
{
	double by_kicks[RUNS_MAX], by_bpf[RUNS_MAX], ratios[RUNS_MAX];
	char what[96];

	snprintf(what, sizeof(what), "bpf sampler at %u Hz: guest time per sample, %s", frequency,
		 kvm);
	for (int run = 0; run < RUNS; run++) {
		if (!measure_run(frequency, &by_kicks[run], &by_bpf[run])) {
			bench_fail(what, "too few samples are alone in their gap");
			return;
		}
		ratios[run] = by_bpf[run] / by_kicks[run];
	}
	bench_print_ratio(what, bench_median(by_bpf, RUNS), "us", "kicks",
			  bench_median(by_kicks, RUNS), ratios, RUNS);
}

int main(int argc, char **argv)
{
	const struct sched_param first = { .sched_priority = 1 };

	if (argc > 1)
		kvm = argv[1];
	if (!bare_guest_possible()) {
		bench_skip("bpf sampler: guest time per sample", "no /dev/kvm");
		return 0;
	}
	if (!start()) {
		bench_skip("bpf sampler: guest time per sample", error_message());
		return 0;
	}
	/* A machine with one CPU has other threads to run as well. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		pthread_setschedparam(guest.cpus[0].thread, SCHED_FIFO, &first);
	measure(99);
	measure(1000);
	attach_close(attach);
	sampled_guest_free(&guest);
	return bench_status();
}
