/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of Debian's kernel compared with the truth: a workload that spends known shares of its
 * time in three system calls, as perf reads them from our file.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/rig/rig.h"
#include "tests/unit/run_command.h"

#define FREQUENCY 999

/*
 * A directory for perf with the results of the rig: the build-id cache is below HOME, one for each
 * number of vCPUs. Emptied before each run: perf uses the first kernel with the same KASLR offset,
 * whatever the addresses of its modules.
 */
#define HOME "build/rig/sample-home-%u"

/* System calls, and the kernel functions that occur only in their chains. */
static const char *const calls[] = { "getrandom", "read", "pread64" };
static const char *const functions[] = { "__x64_sys_getrandom", "ksys_read", "__x64_sys_pread64" };
#define CALLS 3

enum root { ROOT_NONE, ROOT_SYSCALL, ROOT_OTHER };

struct line_sample {
	double time;
	double weight; /* ns */
	int call;      /* index into calls, -1 for none */
	enum root root;
	bool kernel, named; /* of the innermost frame */
	bool interrupt;     /* the outermost frame is the beginning of a separate stack */
	unsigned int depth;
};

struct profile_text {
	struct line_sample *samples; /* attributed to a call */
	size_t count;
};

/*
 * The beginnings of kernel chains other than system calls: exceptions, interrupts, kernel threads,
 * the idle loop, boot.
 */
static bool is_known_root(const char *symbol)
{
	static const char *const roots[] = { "asm_",
					     "ret_from_fork",
					     "secondary_startup_64",
					     "common_startup_64",
					     "x86_64_start_kernel",
					     "start_secondary",
					     "error_entry",
					     "error_return",
					     "paranoid_entry",
					     "entry_SYSRETQ",
					     "syscall_return_via_sysret",
					     "swapgs_" };

	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++)
		if (!strncmp(symbol, roots[i], strlen(roots[i])))
			return true;
	return false;
}

static int call_of(const char *symbol)
{
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(symbol, functions[i]))
			return i;
	return -1;
}

static void read_frame(struct line_sample *sample, unsigned long long address, const char *symbol)
{
	if (!sample->depth++) {
		sample->kernel = address >> 63;
		sample->named = strcmp(symbol, "[unknown]") != 0;
	}
	if (call_of(symbol) >= 0)
		sample->call = call_of(symbol);
	sample->interrupt = !strncmp(symbol, "sysvec_", 7) || !strcmp(symbol, "common_interrupt");
	if (!strncmp(symbol, "entry_SYSCALL_64", 16))
		sample->root = ROOT_SYSCALL;
	else if (is_known_root(symbol) && sample->root != ROOT_SYSCALL)
		sample->root = ROOT_OTHER;
}

static struct line_sample *add_sample(struct profile_text *text, double time, double weight)
{
	if (!(text->count & (text->count - 1)))
		text->samples = realloc(text->samples, (text->count ? 2 * text->count : 1) *
							       sizeof(*text->samples));
	text->samples[text->count] =
		(struct line_sample){ .time = time, .weight = weight, .call = -1 };
	return &text->samples[text->count++];
}

/*
 * perf script -F misc,time,period,ip,sym: a line "MISC TIME: PERIOD", a line "ADDRESS SYMBOL" for
 * each frame, an empty line. Samples of the host (H) are not counted.
 */
static struct profile_text read_script(const char *path, unsigned int cpus)
{
	struct profile_text text = { 0 };
	struct line_sample *sample = NULL;
	char command[512], line[1024], symbol[512], misc[8];
	unsigned long long address;
	double time, weight;
	FILE *perf;

	snprintf(command, sizeof(command),
		 "HOME=$PWD/" HOME " perf script -i %s -F misc,time,period,ip,sym 2>/dev/null",
		 cpus, path);
	perf = popen(command, "r");
	while (perf && fgets(line, sizeof(line), perf)) {
		if (sscanf(line, " %7[A-Za-z] %lf: %lf", misc, &time, &weight) == 3)
			sample = strchr(misc, 'H') ? NULL : add_sample(&text, time, weight);
		else if (sample && sscanf(line, " %llx %511s", &address, symbol) == 2)
			read_frame(sample, address, symbol);
	}
	if (perf)
		CHECK_EQUAL(pclose(perf), 0);
	return text;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The time of the workload without its edges: from its first to its last getrandom. */
static bool find_window(const struct profile_text *text, double *begin, double *end)
{
	double *times = malloc((text->count + 1) * sizeof(*times));
	size_t count = 0;

	for (size_t i = 0; i < text->count; i++)
		if (text->samples[i].call == 0)
			times[count++] = text->samples[i].time;
	qsort(times, count, sizeof(*times), compare_times);
	if (count > 100) {
		*begin = times[count / 50];
		*end = times[count - 1 - count / 50];
	}
	free(times);
	return count > 100;
}

/* Kernel samples in the workload's time; by_call and calls by weight, as in a report. */
struct tally {
	double by_call[CALLS], calls;
	double squares; /* the weights of the calls */
	unsigned long kernel, named, reached, incomplete;
};

/* ON_ONE_STACK: chains end at the bottom of the sample's stack. */
static struct tally tally_window(const struct profile_text *text, double begin, double end,
				 bool on_one_stack)
{
	struct tally tally = { 0 };

	for (size_t i = 0; i < text->count; i++) {
		const struct line_sample *sample = &text->samples[i];
		double weight = sample->weight;

		if (sample->time < begin || sample->time > end || !sample->kernel)
			continue;
		tally.kernel++;
		tally.named += sample->named;
		tally.reached += sample->root == ROOT_SYSCALL;
		tally.incomplete +=
			sample->root == ROOT_NONE && !(on_one_stack && sample->interrupt);
		if (sample->call >= 0) {
			tally.by_call[sample->call] += weight;
			tally.calls += weight;
			tally.squares += weight * weight;
		}
	}
	return tally;
}

/*
 * Number of samples of equal weight with the same precision (Kish's effective sample size): 1200
 * measure a share of 60 % to 1.4 points. If the machine below the rig stalled, one sample
 * represents all that time.
 */
#define ENOUGH         2500
#define ENOUGH_TO_TELL 1200

static double effective_samples(const struct tally *tally)
{
	return tally->calls ? tally->calls * tally->calls / tally->squares : 0;
}

/* The shares that the workload printed, summed over its processes. */
static bool read_truth(const char *output, double *truth)
{
	double sum = 0;

	memset(truth, 0, CALLS * sizeof(*truth));
	while ((output = strstr(output, "workload: truth"))) {
		double seconds, share[CALLS];

		if (sscanf(output,
			   "workload: truth process=%*s seconds=%lf getrandom=%lf read=%lf pread64=%lf",
			   &seconds, &share[0], &share[1], &share[2]) == 4) {
			for (int i = 0; i < CALLS; i++)
				truth[i] += share[i];
			sum++;
		}
		output++;
	}
	for (int i = 0; i < CALLS && sum > 0; i++)
		truth[i] *= 100 / sum;
	return sum > 0;
}

static void check_symbols_and_chains(const struct tally *tally, unsigned int cpus)
{
	double reached = 100.0 * tally->reached / (tally->reached + tally->incomplete);

	printf("%u vCPUs: %lu kernel samples, %.2f %% symbolized, %.2f %% of syscall chains reach the entry\n",
	       cpus, tally->kernel, 100.0 * tally->named / tally->kernel, reached);
	CHECK(tally->named >= 0.97 * tally->kernel);
	CHECK(reached >= 95);
}

/*
 * Every function with its number of samples. Unsymbolized ones are excluded: for an address in an
 * image perf prints the offset, and for the host, which has no addresses here, nothing.
 */
static void check_perf_agrees(const char *data, unsigned int cpus)
{
	char *ours =
		command_output(NULL,
			       "HOME=$PWD/" HOME " build/kvmscope report -i %s --sort symbol | "
			       "awk '!/^#/ && $NF != \"[host]\" && $NF !~ /^(0x)?[0-9a-f]+$/ "
			       "{ gsub(\",\", \"\", $2); print $2, $NF }' | sort",
			       cpus, data);
	char *theirs = command_output(
		NULL,
		"HOME=$PWD/" HOME " perf report -i %s --stdio --no-children -g none -s sym "
		"-F sample,sym 2>/dev/null | "
		"awk '!/^#/ && NF && $NF !~ /^(0x)?[0-9a-f]+$/ { print $1, $NF }' | sort",
		cpus, data);

	CHECK(strlen(ours) > 1000);
	if (strcmp(ours, theirs) != 0)
		FAIL_TEST("kvmscope report and perf report count differently in %s", data);
	free(ours);
	free(theirs);
}

/* Boot is not checked, and would take twice as long if it was sampled as often as the workload. */
#define RUN                                                                                                                        \
	"build/kvmscope run --pmu off --name sample --sampler %s --stack-time 100ms --kernel %s --initrd %s --mem 256M --cpus %u " \
	"-F 49 -o %s --append 'console=ttyS0 quiet " QUICK_BOOT                                                                    \
	" kvmscope.run=sleep+1;workload+shares+%u+%u' "                                                                            \
	"< /dev/null > /tmp/console"
#define WHEN_IT_IS_UP                                                                              \
	"until grep -q 'guest-init: up' /tmp/console; do kill -0 $run || break; sleep 0.2; done; "

/* False if there is no profile, which is recorded as a failure. */
static bool profile_debian(const char *sampler, unsigned int cpus, unsigned int seconds,
			   struct tally *tally, double *truth)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;
	struct profile_text text;
	double begin, end;
	char data[64];
	bool made;

	if (!kernel || !initrd)
		return false;
	snprintf(data, sizeof(data), "build/rig/sample-%u.data", cpus);
	rig_run(&result, 500,
		"export HOME=$PWD/" HOME "; rm -rf $HOME; mkdir -p $HOME; " RUN
		" & run=$!; " WHEN_IT_IS_UP
		"build/kvmscope ctl --name sample freq %d >&2 && wait $run; status=$?; cat /tmp/console; exit $status",
		cpus, sampler, kernel, initrd, cpus, data, seconds, cpus, FREQUENCY);
	made = !result.status && read_truth(result.output, truth);
	if (!made)
		FAIL_TEST("there is no profile: %.2000s%.2000s", result.output, result.errors);
	rig_result_free(&result);
	if (!made)
		return false;
	text = read_script(data, cpus);
	made = find_window(&text, &begin, &end);
	if (made) {
		/* BPF copies one stack; the share of interrupts depends on the machine. */
		*tally = tally_window(&text, begin, end, !strcmp(sampler, "bpf"));
		check_symbols_and_chains(tally, cpus);
		check_perf_agrees(data, cpus);
	} else {
		FAIL_TEST("%zu samples, but none in the workload's system calls", text.count);
	}
	free(text.samples);
	return made;
}

/*
 * Measured and true shares of several runs in percent, weighted by the precision of their samples.
 */
struct shares {
	double found[CALLS], truth[CALLS];
	double samples; /* effective ones */
};

static void add_run(struct shares *shares, const struct tally *run, const double *truth)
{
	double samples = effective_samples(run), part;

	shares->samples += samples;
	part = shares->samples ? samples / shares->samples : 0;
	for (int i = 0; i < CALLS; i++) {
		double found = run->calls ? 100 * run->by_call[i] / run->calls : 0;

		shares->found[i] += part * (found - shares->found[i]);
		shares->truth[i] += part * (truth[i] - shares->truth[i]);
	}
}

/*
 * Allowed deviation of a share in points: 3, or five standard deviations if there are too few
 * samples.
 */
static double bound_for(const struct shares *shares, double truth)
{
	return fmax(3, 5 * sqrt(truth * (100 - truth) / shares->samples));
}

static void check_shares(const struct shares *shares)
{
	for (int i = 0; i < CALLS; i++) {
		printf("%s: %.1f %% of %.0f effective samples, the truth is %.1f %%\n", calls[i],
		       shares->found[i], shares->samples, shares->truth[i]);
		if (fabs(shares->found[i] - shares->truth[i]) > bound_for(shares, shares->truth[i]))
			FAIL_TEST("%s has %.1f %% of the samples, the truth is %.1f %%", calls[i],
				  shares->found[i], shares->truth[i]);
	}
}

static void profile_is_true(const char *sampler, unsigned int cpus, unsigned int seconds)
{
	struct shares shares = { 0 };
	double truth[CALLS];
	struct tally run;

	RIG_REQUIRED();
	for (int i = 0; i < 3 && shares.samples < ENOUGH; i++) {
		if (!profile_debian(sampler, cpus, seconds, &run, truth))
			return;
		add_run(&shares, &run, truth);
	}
	if (shares.samples < ENOUGH_TO_TELL)
		SKIP("symbols and chains are correct, but this machine stalls too often to measure shares in the rig: "
		     "samples worth %.0f, %d are needed",
		     shares.samples, ENOUGH_TO_TELL);
	check_shares(&shares);
}

TEST(sample_truth, shares_symbols_and_chains_on_one_vcpu)
{
	profile_is_true("kick", 1, 12);
}

TEST(sample_truth, shares_symbols_and_chains_on_four_vcpus)
{
	profile_is_true("kick", 4, 14);
}

TEST(sample_truth, shares_symbols_and_chains_with_bpf)
{
	profile_is_true("bpf", 2, 12);
}
