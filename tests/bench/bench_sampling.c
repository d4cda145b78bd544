/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of sampling for a guest: iterations of a CPL3 loop per ns of its thread's CPU time, at
 * 99, 1000, 4000 and 10000 Hz, with kicks and with the BPF program, compared with the same guest
 * without sampling and compared with perf's cpu-clock event at the same frequency on the same
 * thread, which interrupts the guest but never leaves KVM_RUN. The CPU time of the thread that
 * moves BPF's samples to the rings is printed as well. With an argument, which names the KVM, only
 * at 99 and 1000 Hz, in fewer runs.
 *
 * In each run perf's event samples twice: the ratio of both is the noise of such a comparison, and
 * the work by BPF must not take longer than within it.
 */
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/sampled_guest.h"
#include "vmm/attach/attachment.h"

#define COUNTER  0x80000ull
#define RUNS_MAX 10
#define RUNS     bench_size(runs, 1)
#define CPU_TIME 300000000ull

/* mov edi, COUNTER; 1: mov ecx, 100; 2: dec ecx; jnz 2b; inc qword [rdi]; jmp 1b */
static const uint8_t code[] = { 0xbf, 0,    0,    8,    0,    0xb9, 100,  0,    0,   0,
				0xff, 0xc9, 0x75, 0xfc, 0x48, 0xff, 0x07, 0xeb, 0xf2 };

enum way { PLAIN, BY_KICKS, BY_BPF, BY_PERF, BY_PERF_AGAIN, WAYS };

static uint64_t samples_taken, cost_of_samples;
static const char *kvm = "local KVM";
static int runs = RUNS_MAX;

/* The results of one run of the guest. */
struct figures {
	double turns;  /* iterations per ms of its thread's CPU time; negative: it cannot be run */
	double reader; /* CPU time of the thread that moves BPF's samples to the rings, % of the
			* guest's */
};

/* perf's own event on the thread; its small buffer is never read. */
static int perf_event(pid_t thread, unsigned int frequency)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000ull / frequency,
		.sample_type =
			PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD,
		.write_backward = 1,
		.watermark = 1,
		.wakeup_watermark = 1 << 30,
	};
	int event = (int)syscall(SYS_perf_event_open, &attributes, thread, -1, -1,
				 PERF_FLAG_FD_CLOEXEC);

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

/* NULL, with a message, if it cannot be opened. */
static struct attach *attach(unsigned int frequency)
{
	const struct attach_options options = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.frequency = frequency,
		.callchains = true,
		.ring_size = 2ul << 20,
	};
	struct attach *attach = NULL;

	if (attach_open(&attach, &options))
		return NULL;
	if (!attach_start(attach))
		return attach;
	attach_close(attach);
	return NULL;
}

static double turns_of(const struct sampled_guest *guest)
{
	uint64_t turns = 0;

	memory_read(&guest->vm.memory, COUNTER, &turns, sizeof(turns));
	return (double)turns;
}

/* All other threads of this process sleep, except for the reader. */
static void use(struct sampled_guest *guest, struct figures *figures)
{
	double turns = turns_of(guest);
	clockid_t clock;
	uint64_t vcpu, all;

	pthread_getcpuclockid(guest->cpus[0].thread, &clock);
	vcpu = bench_time(clock);
	all = bench_time(CLOCK_PROCESS_CPUTIME_ID);
	sampled_guest_use(guest, vcpu + CPU_TIME);
	figures->turns = turns_of(guest) - turns;
	all = bench_time(CLOCK_PROCESS_CPUTIME_ID) - all;
	vcpu = bench_time(clock) - vcpu;
	figures->turns *= 1e6 / (double)vcpu;
	figures->reader = 100.0 * ((double)all - (double)vcpu) / (double)vcpu;
}

static struct figures run_guest(enum way way, unsigned int frequency)
{
	struct sampled_guest_options options = { .code = code,
						 .size = sizeof(code),
						 .cpl = 3,
						 .cpus = 1,
						 .clock = SAMPLING_CLOCK_CPU,
						 .frequency = way == BY_KICKS ? frequency : 0 };
	struct figures figures = { .turns = -1 };
	struct attach *attached = NULL;
	struct sampled_guest guest;
	int event = -1;

	if (sampled_guest_start(&guest, &options)) {
		fprintf(stderr, "%s\n", error_message());
		return figures;
	}
	sampled_guest_use(&guest, 1000000);
	if (way >= BY_PERF)
		event = perf_event(guest.vm.vcpus[0]->thread_id, frequency);
	if (way == BY_BPF)
		attached = attach(frequency);
	if ((way < BY_PERF || event >= 0) && (way != BY_BPF || attached))
		use(&guest, &figures);
	sampled_guest_stop(&guest);
	attach_close(attached);
	count_samples(&guest);
	if (event >= 0)
		close(event);
	sampled_guest_free(&guest);
	return figures;
}

/* Percentage by which the guest needs more CPU time for the same work. */
static double slowdown(double plain, double sampled)
{
	return (plain / sampled - 1) * 100;
}

/* The cost of BPF, compared with that of kicks in the same runs. */
static void print_bpf(unsigned int frequency, double costs[WAYS][RUNS_MAX], double *readers)
{
	double ratios[RUNS_MAX], kicks[RUNS_MAX];
	char what[96];

	for (int run = 0; run < RUNS; run++)
		ratios[run] = costs[BY_BPF][run] / costs[BY_KICKS][run];
	memcpy(kicks, costs[BY_KICKS], sizeof(kicks));
	snprintf(what, sizeof(what), "bpf sampler: guest slow-down at %u Hz, CPL3 loop, %s",
		 frequency, kvm);
	bench_print_ratio(what, bench_median(costs[BY_BPF], RUNS), "%", "kicks",
			  bench_median(kicks, RUNS), ratios, RUNS);
	snprintf(what, sizeof(what), "bpf sampler: CPU time of the reader at %u Hz, %s", frequency,
		 kvm);
	bench_print(what, bench_median(readers, RUNS), "% of a vCPU");
}

/* The time of the vCPU for the same work with WAY, compared with perf's event in the same runs.
 * MOST: bound of the ratio; 0: none. Returns the largest ratio of a run. */
static double print_work(const char *name, unsigned int frequency, const double *turns,
			 const double *perf, double most)
{
	const struct bench_bound bound = { most > 0 ? BENCH_MOST : BENCH_ANY, most };
	double ratios[RUNS_MAX], times[2][RUNS_MAX];
	char what[96];

	for (int run = 0; run < RUNS; run++) {
		ratios[run] = perf[run] / turns[run];
		times[0][run] = 1e6 / turns[run];
		times[1][run] = 1e6 / perf[run];
	}
	snprintf(what, sizeof(what), "%s: time of an iteration at %u Hz, CPL3 loop, %s", name,
		 frequency, kvm);
	bench_print_ratio_bound(what, bench_median(times[0], RUNS), "ns", "perf cpu-clock",
				bench_median(times[1], RUNS), ratios, RUNS, bound);
	return ratios[RUNS - 1];
}

static void measure(unsigned int frequency)
{
	double costs[WAYS][RUNS_MAX], turns[WAYS][RUNS_MAX], readers[RUNS_MAX], noise;
	bool by_bpf = true;
	char what[96];

	for (int run = 0; run < RUNS; run++) {
		double plain = run_guest(PLAIN, 0).turns;

		for (enum way way = BY_KICKS; way < WAYS; way++) {
			struct figures figures = run_guest(way, frequency);

			turns[way][run] = figures.turns;
			costs[way][run] = slowdown(plain, figures.turns);
			if (way == BY_BPF) {
				readers[run] = figures.reader;
				by_bpf = by_bpf && figures.turns > 0;
			}
		}
	}
	noise = print_work("perf cpu-clock again", frequency, turns[BY_PERF_AGAIN], turns[BY_PERF],
			   0);
	if (by_bpf)
		print_work("bpf sampler", frequency, turns[BY_BPF], turns[BY_PERF],
			   frequency == 1000 ? noise : 0);
	if (by_bpf)
		print_bpf(frequency, costs, readers);
	else
		bench_skip("bpf sampler: guest slow-down", error_message());
	snprintf(what, sizeof(what), "sampling: guest slow-down at %u Hz, CPL3 loop, %s", frequency,
		 kvm);
	bench_print_relative(what, bench_median(costs[BY_KICKS], RUNS), "%", "perf cpu-clock",
			     bench_median(costs[BY_PERF], RUNS));
}

int main(int argc, char **argv)
{
	static const unsigned int frequencies[] = { 99, 1000, 4000, 10000 };
	size_t count = argc > 1 ? 2 : sizeof(frequencies) / sizeof(*frequencies);

	if (argc > 1) {
		kvm = argv[1];
		runs = 5;
	}
	if (!bare_guest_possible()) {
		bench_skip("sampling: guest slow-down", "no /dev/kvm");
		return 0;
	}
	for (size_t i = 0; i < count; i++)
		measure(frequencies[i]);
	bench_print("sampling: recording one sample, without the exit",
		    (double)cost_of_samples / (double)samples_taken, "ns");
	return bench_status();
}
