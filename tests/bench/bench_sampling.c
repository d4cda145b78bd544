// SPDX-License-Identifier: Apache-2.0
/*
 * What sampling costs a guest: turns of a CPL3 loop on the local KVM for each
 * ns of its thread's CPU time, at 99, 1000, 4000 and 10000 Hz, beside the same
 * guest unsampled and beside perf's cpu-clock event of the same frequency on
 * the same thread, which interrupts it but never leaves KVM_RUN.
 */
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/sampled_guest.h"

#define COUNTER  0x80000ull
#define RUNS     5
#define CPU_TIME 300000000ull

/* mov edi, COUNTER; 1: mov ecx, 100; 2: dec ecx; jnz 2b; inc qword [rdi]; jmp 1b */
static const uint8_t code[] = { 0xbf, 0,    0,    8,    0,    0xb9, 100,  0,    0,   0,
				0xff, 0xc9, 0x75, 0xfc, 0x48, 0xff, 0x07, 0xeb, 0xf2 };

static uint64_t samples_taken, cost_of_samples;

/* perf's own event on the thread, its records into a small buffer that is never read. */
static int perf_event(pid_t thread, unsigned int frequency)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000ull / frequency,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD,
		.write_backward = 1,
		.watermark = 1,
		.wakeup_watermark = 1 << 30,
	};
	int event = (int)syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (event >= 0)
		mmap(NULL, 9 * 4096, PROT_READ, MAP_SHARED, event, 0);
	return event;
}

static void count_samples(const struct sampled_guest *guest)
{
	struct sampler_statistics statistics;

	if (!guest->sampler)
		return;
	sampler_statistics(guest->sampler, &statistics);
	samples_taken += statistics.samples;
	cost_of_samples += statistics.cost;
}

/* Turns for each ms of CPU time; negative if it can not be run. */
static double run_guest(unsigned int frequency, unsigned int perf_frequency)
{
	struct sampled_guest_options options = { .code = code,
						 .size = sizeof(code),
						 .cpl = 3,
						 .cpus = 1,
						 .clock = SAMPLING_CLOCK_CPU,
						 .frequency = frequency };
	struct sampled_guest guest;
	uint64_t turns = 0;
	int event = -1;

	if (sampled_guest_start(&guest, &options)) {
		fprintf(stderr, "%s\n", error_message());
		return -1;
	}
	while (!atomic_load(&guest.vm.vcpus[0]->thread_id))
		usleep(100);
	if (perf_frequency)
		event = perf_event(guest.vm.vcpus[0]->thread_id, perf_frequency);
	sampled_guest_use(&guest, CPU_TIME);
	sampled_guest_stop(&guest);
	count_samples(&guest);
	memory_read(&guest.vm.memory, COUNTER, &turns, sizeof(turns));
	if (event >= 0)
		close(event);
	sampled_guest_free(&guest);
	return perf_frequency && event < 0 ? -1 : 1e6 * turns / guest.cpus[0].cpu_time;
}

/* How many percent more CPU time the guest needs for the same work. */
static double slowdown(double plain, double sampled)
{
	return (plain / sampled - 1) * 100;
}

static void measure(unsigned int frequency)
{
	double ours[RUNS], perfs[RUNS];
	char what[80];

	for (int run = 0; run < RUNS; run++) {
		double plain = run_guest(0, 0);

		ours[run] = slowdown(plain, run_guest(frequency, 0));
		perfs[run] = slowdown(plain, run_guest(0, frequency));
	}
	snprintf(what, sizeof(what), "sampling: guest slow-down at %u Hz, CPL3 loop, local KVM", frequency);
	bench_print_beside(what, bench_median(ours, RUNS), "%", "perf cpu-clock", bench_median(perfs, RUNS));
}

int main(void)
{
	static const unsigned int frequencies[] = { 99, 1000, 4000, 10000 };

	if (!bare_guest_possible()) {
		bench_skip("sampling: guest slow-down, local KVM", "no /dev/kvm");
		return 0;
	}
	for (size_t i = 0; i < sizeof(frequencies) / sizeof(*frequencies); i++)
		measure(frequencies[i]);
	bench_print("sampling: taking one sample, without the exit", (double)cost_of_samples / samples_taken,
		    "ns");
	return 0;
}
