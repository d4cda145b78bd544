/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a sample for the guest of kvmscope run: kicks, the BPF program and perf's cpu-clock
 * event without call chains sample the same vCPU at the same time, at 99 and 1000 Hz. Their
 * frequencies differ by 1 Hz, so that each follows the others equally closely during the one-second
 * window. The guest measures the cost as in bench_attach: gaps that contain exactly one sample. An
 * argument names the KVM.
 *
 * The program follows frame pointers, as in a guest that is not Linux; or it reads the words of a
 * task, as in Linux, and copies the top of the user stack.
 */
#include <linux/perf_event.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/bench/gap_guest.h"
#include "vmm/attach/attach_state.h"

#define RUNS_MAX 10
#define RUNS     bench_size(RUNS_MAX, 1)
#define TRIES    5 /* tries for a run, for a busy machine */

#define PERF_PAGES 64 /* of the event's ring, which holds the samples of a window */

/* Guest addresses, outside of what the gap guest uses. */
#define TASK_POINTER 0x200000ull
#define TASK         0x201000ull
#define MM           0x204000ull

enum way { KICKS, BPF, PERF, WAYS };

/* What the BPF program reads. STACK 0: frame pointers. */
struct reading {
	const char *what;
	uint32_t stack;      /* bytes of the user stack */
	double most_to_perf; /* bound of the ratio at 1000 Hz; 0: none */
};

/* The first size of a process, and the largest one, which few chains need. */
static const struct reading readings[] = {
	{ "frame pointers", 0, 1.3 },
	{ "task and 4 KiB of stack", BPF_USER_STACK_FIRST, 1.3 },
	{ "task and 32 KiB of stack", BPF_USER_STACK_MAX, 0 },
};

static const char *kvm = "local KVM";
static struct sampled_guest guest;
static struct attach *attach;
static struct gap_window window;
static int64_t ahead = GAP_AHEAD_UNKNOWN; /* the guest's TSC */

/* For each gap of the window, the number of samples in it. */
static unsigned int counts[WAYS][GAP_WINDOW_MAX], all[GAP_WINDOW_MAX];

/* Distances as in Debian's 6.1. */
static const struct attach_cpu linux_cpu = {
	.layout = { .known = true,
		    .current = TASK_POINTER,
		    .stack_size = 16384,
		    .stack = 32,
		    .mm = 2264,
		    .pid = 2504,
		    .tgid = 2508,
		    .comm = 2968,
		    .leader = 2568,
		    .parent = 2528,
		    .started = 2776,
		    .page_table = 80 },
	.vmas = { .known = true, .has_changes = true, .mm_space = 888, .mm_changes = 896 },
};

static void write_word(uint64_t gpa, uint64_t word)
{
	memory_write(&guest.vm.memory, gpa, &word, sizeof(word));
}

/* Lets the program find a task with an address space that is known and does not change. */
static void use_task(uint32_t stack)
{
	const struct guest_task_layout *layout = &linux_cpu.layout;
	const struct user_stack process = { .mm = MM, .size = stack, .number = 1, .changes = 1 };
	struct attach_cpu cpu = linux_cpu;

	write_word(TASK_POINTER, TASK);
	write_word(TASK + layout->mm, MM);
	write_word(TASK + layout->leader, TASK);
	write_word(TASK + layout->parent, TASK);
	write_word(MM + cpu.vmas.mm_space, process.number);
	write_word(MM + cpu.vmas.mm_changes, process.changes);
	cpu.paging.cr3 = BARE_GUEST_TABLES;
	attach->backend->set_cpu(attach->source, 0, &cpu);
	attach->backend->set_process(attach->source, &process);
}

static bool start_guest(void)
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

	if (sampled_guest_start(&guest, &options))
		return false;
	sampled_guest_use(&guest, 1000000); /* KVM has recorded the vCPU's thread */
	return true;
}

static bool start_bpf(const struct reading *reading)
{
	const struct attach_options own = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.frequency = 1000,
		.callchains = true,
		.ring_size = 2ul << 20,
	};

	if (attach_open(&attach, &own) || attach_update_vcpus(attach))
		return false;
	if (reading->stack)
		use_task(reading->stack);
	return !attach_start(attach) && !attach_set_frequency(attach, 0);
}

static void add_sample(uint64_t time, enum way way, bool counts_for_way)
{
	size_t gap;

	if (!gap_window_find(&window, time, &gap))
		return;
	all[gap]++;
	counts[way][gap] += counts_for_way;
}

/* Samples of the host do not count for the sampler. */
static void count_samples(struct ring *ring, enum way way)
{
	const struct ring_record *record;

	while ((record = ring_read(ring))) {
		const struct sample *sample = (const void *)record->payload;

		if (record->type == RECORD_SAMPLE)
			add_sample(sample->time, way, !(sample->flags & SAMPLE_HOST));
	}
	ring_read_done(ring);
}

/* perf's event */

struct perf_sample {
	struct perf_event_header header;
	uint64_t ip, pid_tid, time, period;
};

static struct perf_event_mmap_page *perf_ring;
static int perf_event = -1;

static bool start_perf(unsigned int frequency)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000ull / frequency,
		.sample_type =
			PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD,
		.watermark = 1,
		.wakeup_watermark = 1 << 30,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
	};

	perf_event = (int)syscall(SYS_perf_event_open, &attributes, guest.vm.vcpus[0]->thread_id,
				  -1, -1, PERF_FLAG_FD_CLOEXEC);
	perf_ring = mmap(NULL, (1 + PERF_PAGES) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
			 perf_event, 0);
	return perf_event >= 0 && perf_ring != MAP_FAILED;
}

/* The ring has not wrapped: it is new, and larger than a window's samples. */
static void end_perf(void)
{
	const uint8_t *data = (const uint8_t *)perf_ring + 4096;
	uint64_t end = atomic_load((_Atomic __u64 *)&perf_ring->data_head);
	struct perf_sample sample;

	for (uint64_t at = 0; at + sizeof(sample) <= end; at += sample.header.size) {
		memcpy(&sample, data + at, sizeof(sample));
		if (sample.header.type == PERF_RECORD_SAMPLE)
			add_sample(sample.time, PERF, true);
	}
	munmap(perf_ring, (1 + PERF_PAGES) * 4096);
	close(perf_event);
}

/* Windows */

static void set_frequency(unsigned int frequency)
{
	if (sampled_guest_set_frequency(&guest, frequency) ||
	    attach_set_frequency(attach, frequency ? frequency - 1 : 0) ||
	    (frequency && !start_perf(frequency - 2))) {
		fprintf(stderr, "%s\n", error_message());
		exit(1);
	}
}

static void measure_window(unsigned int frequency)
{
	size_t count;

	memset(counts, 0, sizeof(counts));
	memset(all, 0, sizeof(all));
	set_frequency(frequency);
	gap_guest_measure(&guest, &ahead, &window);
	set_frequency(0);
	end_perf();
	count_samples(guest.rings[0], KICKS);
	count_samples(attach_rings(attach, &count)[0], BPF);
}

/* The median of gaps with exactly one sample, which is of WAY, us; 0: fewer than LEAST. */
static double median_of(enum way way, size_t least)
{
	static double costs[GAP_WINDOW_MAX];
	size_t count = 0;

	for (size_t i = 0; i < window.count; i++)
		if (counts[way][i] == 1 && all[i] == 1)
			costs[count++] = (double)window.gaps[i].length / 1e3;
	return count < least ? 0 : bench_median(costs, count);
}

static bool measure_run(unsigned int frequency, int run, double costs[WAYS][RUNS_MAX])
{
	for (int i = 0; i < TRIES; i++) {
		bool enough = true;

		measure_window(frequency);
		for (enum way way = 0; way < WAYS; way++) {
			costs[way][run] = median_of(way, frequency / 4);
			enough = enough && costs[way][run] > 0;
		}
		if (enough)
			return true;
	}
	return false;
}

static void print_beside(const char *what, enum way way, const char *name,
			 double costs[WAYS][RUNS_MAX], double most)
{
	const struct bench_bound bound = { most > 0 ? BENCH_MOST : BENCH_ANY, most };
	double bpf[RUNS_MAX], other[RUNS_MAX], ratios[RUNS_MAX];

	for (int run = 0; run < RUNS; run++)
		ratios[run] = costs[BPF][run] / costs[way][run];
	memcpy(bpf, costs[BPF], sizeof(bpf));
	memcpy(other, costs[way], sizeof(other));
	bench_print_ratio_bound(what, bench_median(bpf, RUNS), "us", name,
				bench_median(other, RUNS), ratios, RUNS, bound);
}

static void measure(const struct reading *reading, unsigned int frequency)
{
	double costs[WAYS][RUNS_MAX];
	char what[128];

	snprintf(what, sizeof(what), "bpf sampler, %s, %u Hz: guest time per sample, %s",
		 reading->what, frequency, kvm);
	for (int run = 0; run < RUNS; run++)
		if (!measure_run(frequency, run, costs)) {
			bench_fail(what, "too few samples are alone in their gap");
			return;
		}
	print_beside(what, KICKS, "kicks", costs, 0);
	print_beside(what, PERF, "perf cpu-clock without chains", costs,
		     frequency == 1000 ? reading->most_to_perf : 0);
}

static void measure_reading(const struct reading *reading)
{
	if (!start_bpf(reading)) {
		bench_skip("bpf sampler: guest time per sample", error_message());
	} else {
		measure(reading, 99);
		measure(reading, 1000);
	}
	attach_close(attach);
	attach = NULL;
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
	if (!start_guest()) {
		bench_skip("bpf sampler: guest time per sample", error_message());
		return 0;
	}
	/* A machine with one CPU has other threads to run as well. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		pthread_setschedparam(guest.cpus[0].thread, SCHED_FIFO, &first);
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
		measure_reading(&readings[i]);
	sampled_guest_free(&guest);
	return bench_status();
}
