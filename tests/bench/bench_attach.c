/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a sample for the guest of another VMM: each backend of kvmscope attach at 99 and 1000
 * Hz, compared with perf kvm --guest record -e cpu-clock, which samples the same VM at the same
 * time. The guest is a CPL3 loop, eight frames deep, on the local KVM; the backends run one after
 * the other in each run. perf's frequency is lower by 1 Hz: with equal frequencies one timer would
 * always run right after the other and find its caches warm. With the offset each follows the other
 * equally closely during the one-second window.
 *
 * The guest measures the cost: its loop reads the TSC in each iteration and records each gap in
 * which it did not run. The cost of a sample is the length of the gap that contains the sample's
 * time; gaps with several samples are ignored. This excludes other activity of the machine unless
 * it falls into the same gap. The median over some hundred samples is used, and whatever slows down
 * the CPU affects both tools. The vCPU has priority over everything else (SCHED_FIFO, where
 * allowed). The cost of colder caches after a sample is not measured. With RUNS runs, the smallest
 * and the largest ratio bound the median with a confidence of 1 - 2 / 2^RUNS, 97 % for six. The CPU
 * time of the tools is printed as well.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/attach_tools.h"
#include "tests/bench/bench.h"
#include "tests/bench/gap_guest.h"
#include "vmm/perf_data/perf_data_reader.h"

#define TRIES         3 /* tries for a run */
#define RUNS_MAX      6
#define RUNS          bench_size(RUNS_MAX, 1)
#define SAMPLES_MIN   30 /* samples per window */
#define WINDOW_WAIT_S 60

/*
 * us. With the default limit some stops would be abandoned: no sample, but still a cost for the
 * guest.
 */
#define STOP_LIMIT "5000"

/*
 * Bounds relative to perf: the same cost, plus the spread of such a median between two equal costs.
 * For ptrace, in which the stopped thread makes two system calls, the bound that the documentation
 * claims.
 */
static const struct bench_bound perfs_bound = { BENCH_MOST, 1.01 },
				stops_bound = { BENCH_MOST, 25 };

/* A process with a VM that measures itself on request. */
static struct {
	pid_t pid;
	int request, answer;
} vm;

/* Processed in order; the backends of a group run at the same time. */
static const struct way ways[] = {
	{ "perf", "build/bench/attach.by-perf.data", "build/bench/attach.by-perf.log", NULL },
	{ "bpf", "build/bench/attach.by-bpf.data", "build/bench/attach.by-bpf.log", NULL },
	{ "ptrace", "build/bench/attach.by-ptrace.data", "build/bench/attach.by-ptrace.log",
	  STOP_LIMIT },
};
#define WAYS (sizeof(ways) / sizeof(*ways))

static const struct group {
	size_t first, count;
} groups[] = { { 0, 1 }, { 1, 1 }, { 2, 1 } };
#define GROUPS (sizeof(groups) / sizeof(*groups))

/* The process of the VM. */

/*
 * Without priority, the vCPU would often wait for other threads right after a sample on a busy
 * machine.
 */
static void set_priority(pthread_t thread, bool first)
{
	const struct sched_param param = { .sched_priority = first };

	pthread_setschedparam(thread, first ? SCHED_FIFO : SCHED_OTHER, &param);
}

/* Named as in other VMMs, so that the vCPU can be distinguished from other threads. */
static void name_thread(const struct sampled_guest *guest)
{
	while (!atomic_load(&guest->vm.vcpus[0]->thread_id))
		usleep(100);
	pthread_setname_np(guest->cpus[0].thread, "vCPU 0");
}

static _Noreturn void run_vm(int request, int answer)
{
	const struct sampled_guest_options options = { .code = gap_guest_code,
						       .size = sizeof(gap_guest_code),
						       .cpl = 3,
						       .cpus = 1,
						       .clock = SAMPLING_CLOCK_CPU };
	static struct gap_window window;
	int64_t ahead = GAP_AHEAD_UNKNOWN;
	struct sampled_guest guest;
	char what;

	if (sampled_guest_start(&guest, &options)) {
		fprintf(stderr, "%s\n", error_message());
		_exit(1);
	}
	name_thread(&guest);
	while (read(request, &what, 1) == 1) {
		set_priority(guest.cpus[0].thread, true);
		gap_guest_measure(&guest, &ahead, &window);
		set_priority(guest.cpus[0].thread, false);
		if (write(answer, &window, sizeof(window)) != sizeof(window))
			break;
	}
	_exit(0);
}

static void start_vm(void)
{
	int request[2], answer[2];

	if (pipe2(request, O_CLOEXEC) || pipe2(answer, O_CLOEXEC))
		exit(1);
	vm.pid = fork();
	if (!vm.pid) {
		close(request[1]);
		run_vm(request[0], answer[1]);
	}
	close(request[0]);
	close(answer[1]);
	vm.request = request[1];
	vm.answer = answer[0];
}

static void measure_window(struct gap_window *window)
{
	struct pollfd measured = { .fd = vm.answer, .events = POLLIN };
	size_t size = 0;
	ssize_t got = 1;

	if (write(vm.request, "", 1) != 1)
		exit(1);
	if (poll(&measured, 1, WINDOW_WAIT_S * 1000) != 1) {
		bench_fail("attach", "the guest got less than 1 s of CPU time in 60 s");
		exit(1);
	}
	for (; size < sizeof(*window) && got > 0; size += (size_t)got)
		got = read(vm.answer, (char *)window + size, sizeof(*window) - size);
	if (got <= 0)
		exit(1);
}

/* A tool that samples. */
struct tool {
	pid_t pid;
	uint64_t used; /* CPU time at the beginning of the window, ns */
};

struct figures {
	double ours[RUNS_MAX], perfs[RUNS_MAX];        /* us of the guest's time per sample */
	double our_cpu[RUNS_MAX], perfs_cpu[RUNS_MAX]; /* CPU time of the tool, % of a core */
	double mean_stop, longest_stop;                /* us; 0: the tool stops no thread */
	double stops[RUNS_MAX]; /* per second; fewer than requested, because the sampler pauses */
	bool works;
	char reason[200]; /* why there are no figures */
};

static void note_stops(struct figures *figures, int run, const struct way *way)
{
	double longest = tools_reported_number(way, "\"max_us\": ");

	figures->stops[run] = tools_reported_number(way, "\"count\": ") /
			      tools_reported_number(way, "\"seconds\": ");
	if (longest)
		figures->mean_stop = tools_reported_number(way, "\"mean_us\": ");
	figures->longest_stop = longest > figures->longest_stop ? longest : figures->longest_stop;
}

/* The cost of samples. */

/*
 * For each gap of the window, the number of samples in it: of each tool, of perf, and of all tools.
 */
static struct {
	struct gap_window window;
	unsigned int ours[WAYS][GAP_WINDOW_MAX], perfs[GAP_WINDOW_MAX], all[GAP_WINDOW_MAX];
} seen;

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	unsigned int *counts = context;
	size_t gap;

	if (gap_window_find(&seen.window, sample->time, &gap)) {
		counts[gap]++;
		seen.all[gap]++;
	}
	return 0;
}

static bool read_samples(const char *path, unsigned int counts[GAP_WINDOW_MAX])
{
	const struct perf_data_events events = { .sample = count_sample, .context = counts };
	struct perf_data_reader *reader;
	int error;

	memset(counts, 0, GAP_WINDOW_MAX * sizeof(counts[0]));
	error = perf_data_reader_open(&reader, path);
	if (error)
		return false;
	error = perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return !error;
}

/*
 * The median of gaps with exactly one sample, from COUNTS and no other tool. False: too few gaps.
 */
static bool median_of(const unsigned int counts[GAP_WINDOW_MAX], double *median)
{
	static double costs[GAP_WINDOW_MAX];
	size_t count = 0;

	for (size_t i = 0; i < seen.window.count; i++)
		if (counts[i] == 1 && seen.all[i] == 1)
			costs[count++] = (double)seen.window.gaps[i].length / 1e3;
	if (count < SAMPLES_MIN)
		return false;
	*median = bench_median(costs, count);
	return true;
}

/* A group of tools that sample, and perf. */
struct tools {
	const struct group *group;
	struct tool ours[WAYS], perfs;
};

static bool read_costs(struct figures figures[WAYS], int run, const struct group *group)
{
	bool enough = true;

	memset(seen.all, 0, sizeof(seen.all));
	for (size_t way = group->first; way < group->first + group->count; way++)
		enough = enough &&
			 (!figures[way].works || read_samples(ways[way].output, seen.ours[way]));
	enough = enough && read_samples(tools_perf_data, seen.perfs);
	for (size_t way = group->first; way < group->first + group->count; way++)
		enough = enough && (!figures[way].works ||
				    (median_of(seen.ours[way], &figures[way].ours[run]) &&
				     median_of(seen.perfs, &figures[way].perfs[run])));
	return enough;
}

static void measure_all(struct figures figures[WAYS], int run, struct tools *tools)
{
	const struct group *group = tools->group;
	uint64_t begun = bench_time(CLOCK_MONOTONIC);
	double elapsed;

	for (size_t way = group->first; way < group->first + group->count; way++)
		tools->ours[way].used = tools_cpu_time(tools->ours[way].pid);
	tools->perfs.used = tools_cpu_time(tools->perfs.pid);
	measure_window(&seen.window);
	elapsed = (double)(bench_time(CLOCK_MONOTONIC) - begun);
	for (size_t way = group->first; way < group->first + group->count; way++) {
		const struct tool *ours = &tools->ours[way], *perfs = &tools->perfs;

		figures[way].our_cpu[run] =
			100.0 * (double)(tools_cpu_time(ours->pid) - ours->used) / elapsed;
		figures[way].perfs_cpu[run] =
			100.0 * (double)(tools_cpu_time(perfs->pid) - perfs->used) / elapsed;
	}
}

/* Starts all tools, then waits for each in turn. Returns whether any of them samples. */
static bool start_kvmscope(struct figures figures[WAYS], struct tools *tools,
			   unsigned int frequency)
{
	const struct group *group = tools->group;
	bool any = false;

	for (size_t way = group->first; way < group->first + group->count; way++)
		tools->ours[way].pid = figures[way].works
					       ? tools_start_kvmscope(vm.pid, &ways[way], frequency)
					       : 0;
	for (size_t way = group->first; way < group->first + group->count; way++) {
		pid_t pid = tools->ours[way].pid;

		if (!figures[way].works)
			continue;
		figures[way].works = pid && tools_wait_for_kvmscope(pid, &ways[way]);
		any = any || figures[way].works;
		if (!figures[way].works)
			tools_last_message(&ways[way], figures[way].reason);
	}
	return any;
}

static void end_tools(struct figures figures[WAYS], int run, struct tools *tools)
{
	const struct group *group = tools->group;

	tools_end(tools->perfs.pid);
	for (size_t way = group->first; way < group->first + group->count; way++) {
		if (!tools->ours[way].pid)
			continue;
		tools_end(tools->ours[way].pid);
		note_stops(&figures[way], run, &ways[way]);
	}
}

static bool measure_tools(struct figures figures[WAYS], int run, const struct group *group,
			  unsigned int frequency)
{
	struct tools tools = { .group = group };
	bool enabled;

	if (!start_kvmscope(figures, &tools, frequency)) {
		end_tools(figures, run, &tools);
		return false;
	}
	tools.perfs.pid = tools_start_perf(vm.pid, frequency - 1);
	enabled = tools.perfs.pid && tools_enable_perf();
	if (enabled) {
		usleep(100000);
		measure_all(figures, run, &tools);
	}
	end_tools(figures, run, &tools);
	if (!enabled) {
		bench_fail("attach", "perf does not sample");
		exit(1);
	}
	return read_costs(figures, run, group);
}

/* Retries because the machine was too busy. */
static void measure_group(struct figures figures[WAYS], int run, const struct group *group,
			  unsigned int frequency)
{
	for (int i = 0; i < TRIES; i++)
		if (measure_tools(figures, run, group, frequency))
			return;
	for (size_t way = group->first; way < group->first + group->count; way++) {
		if (figures[way].works)
			strcpy(figures[way].reason, "too few samples are alone in their gap");
		figures[way].works = false;
	}
}

/* The results. */

/*
 * Compares OURS with PERFS, with the smallest and the largest ratio of a run and with BOUND.
 * Returns the median of OURS.
 */
static double print_relative(const char *what, const char *unit, const double *ours,
			     const double *perfs, struct bench_bound bound)
{
	double one[RUNS_MAX], other[RUNS_MAX], ratios[RUNS_MAX], median;

	for (int i = 0; i < RUNS; i++)
		ratios[i] = ours[i] / perfs[i];
	memcpy(one, ours, sizeof(one));
	memcpy(other, perfs, sizeof(other));
	median = bench_median(one, RUNS);
	bench_print_ratio_bound(what, median, unit, "perf kvm record", bench_median(other, RUNS),
				ratios, RUNS, bound);
	return median;
}

static void print(const char *way, unsigned int frequency, struct figures *figures)
{
	/* A stop takes longer than any interrupt. */
	bool stops = figures->longest_stop;
	char what[96];
	double cost;

	snprintf(what, sizeof(what), "attach, %s at %u Hz: guest time per sample", way, frequency);
	if (!figures->works) {
		bench_fail(what, figures->reason);
		return;
	}
	cost = print_relative(what, "us", figures->ours, figures->perfs,
			      stops ? stops_bound : perfs_bound);
	snprintf(what, sizeof(what), "attach, %s at %u Hz: share of guest time", way, frequency);
	bench_print(what, cost * (stops ? bench_median(figures->stops, RUNS) : frequency) / 1e4,
		    "%");
	snprintf(what, sizeof(what), "attach, %s at %u Hz: CPU time of the tool", way, frequency);
	print_relative(what, "% of a core", figures->our_cpu, figures->perfs_cpu,
		       (struct bench_bound){ 0 });
	if (!stops)
		return;
	snprintf(what, sizeof(what), "attach, %s at %u Hz: mean stop", way, frequency);
	bench_print(what, figures->mean_stop, "us");
	snprintf(what, sizeof(what), "attach, %s at %u Hz: longest stop", way, frequency);
	bench_print(what, figures->longest_stop, "us");
}

static void measure(unsigned int frequency)
{
	static struct figures figures[WAYS];

	memset(figures, 0, sizeof(figures));
	for (size_t way = 0; way < WAYS; way++)
		figures[way].works = true;
	for (int run = 0; run < RUNS; run++)
		for (size_t group = 0; group < GROUPS; group++)
			measure_group(figures, run, &groups[group], frequency);
	for (size_t way = 0; way < WAYS; way++)
		print(ways[way].name, frequency, &figures[way]);
}

int main(void)
{
	if (!bare_guest_possible()) {
		bench_skip("attach: guest time per sample, local KVM", "no /dev/kvm");
		return 0;
	}
	if (!tools_open()) {
		perror("perf's FIFOs");
		return 1;
	}
	start_vm();
	measure_window(&seen.window); /* the guest runs from here on */
	measure(99);
	measure(1000);
	close(vm.request);
	waitpid(vm.pid, NULL, 0);
	for (size_t way = 0; way < WAYS; way++) {
		unlink(ways[way].output);
		unlink(ways[way].messages);
	}
	tools_close();
	return bench_status();
}
