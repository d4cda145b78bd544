/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of user-space programs in Debian's kernel agree with those that the guest's own perf
 * records with DWARF of the same run, the first of both (tests/rig/userland_run.h).
 */
#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shared/unconst.h"
#include "tests/rig/debian_recording.h"
#include "tests/rig/image_truth.h"
#include "tests/rig/perf_script.h"
#include "tests/rig/rig.h"
#include "tests/rig/userland_run.h"
#include "tests/unit/stack_agreement.h"

/*
 * For each process separately: perf in the guest cannot measure the distribution over processes,
 * because it loses samples while it does not run.
 */
struct chains {
	const char *what;
	bool (*is_compared)(const struct script_sample *sample);
	unsigned long enough; /* our samples */
	struct stack_samples *of[USERLAND_PROCESSES];
	unsigned long whole[USERLAND_PROCESSES][2], cut[USERLAND_PROCESSES][2];
};

#define LINKER   "/mnt/lib64/ld-linux-x86-64.so.2"
#define STRIPPED "/mnt/bin/stripped"

/* The file offset of IMAGE's code, which is unsymbolized; 0: another image. */
static unsigned long long entry_of(const char *image)
{
	static const char *const nameless[] = { LINKER, STRIPPED };
	static Elf64_Ehdr headers[2];
	char path[128];

	for (size_t i = 0; i < 2; i++) {
		FILE *file;

		if (strcmp(image, nameless[i]) != 0)
			continue;
		snprintf(path, sizeof(path), USERLAND_FILES "%s", nameless[i]);
		file = headers[i].e_entry ? NULL : fopen(path, "r");
		if (file) {
			CHECK_EQUAL(fread(&headers[i], sizeof(headers[i]), 1, file), 1);
			fclose(file);
		}
		return headers[i].e_entry;
	}
	return 0;
}

/* Up to the start of the program or of the dynamic linker. */
static bool is_whole(const struct script_sample *sample)
{
	const struct script_frame *root = &sample->frames[sample->depth - 1];
	unsigned long long entry = entry_of(root->image);

	if (entry)
		return root->address - entry < 64; /* the linker makes two calls there */
	return !strcmp(root->symbol, "_start");
}

/*
 * Forked and executed: perf reads the tables of its libraries relative to the parent's addresses,
 * and cuts or misses callers.
 */
static bool is_misread(const struct script_sample *sample)
{
	return !strcmp(sample->comm, "brief");
}

/*
 * Excludes the program that works in the kernel: the guest's clock interrupt is delivered after
 * system calls instead of in them, and its samples are at the next instruction.
 */
static bool is_of_programs(const struct script_sample *sample)
{
	return script_sample_is_user(sample) && userland_is_process(sample->comm) &&
	       strcmp(sample->comm, "hashed") != 0 && !is_misread(sample);
}

/*
 * In the functions that the programs are busy in. Each has one or few callers, so that no chain is
 * missing from a recording by chance.
 */
static bool is_of_functions(const struct script_sample *sample)
{
	int function = sample->depth ? userland_function_of(sample->frames[0].symbol) : -1;

	return function >= 0 && !strcmp(userland_functions[function].process, sample->comm) &&
	       !is_misread(sample);
}

/* Interrupts are enabled there. */
static bool is_in_module(const struct script_sample *sample)
{
	return sample->depth && !strcmp(sample->frames[0].image, USERLAND_MODULE);
}

static void print_chain(const struct script_sample *sample, char *names, size_t size)
{
	int length = snprintf(names, size, "%s", sample->comm);

	for (size_t i = 0; i < sample->depth && (size_t)length < size; i++) {
		const struct script_frame *frame = &sample->frames[i];
		/*
		 * For a stripped file perf in the guest has no other symbol. The call of exit is
		 * the last instruction, and perf looks up the symbol after it in our recording.
		 */
		bool known = strcmp(frame->symbol, "[unknown]") != 0 &&
			     strcmp(frame->symbol, "exit") != 0 &&
			     (strncmp(frame->image, "/mnt/", 5) != 0 ||
			      image_truth_has_name(USERLAND_FILES, frame));

		length += snprintf(names + length, size - (size_t)length, ";%s",
				   known ? frame->symbol : frame->image);
	}
}

static void add_chain(struct chains *chains, unsigned int recording,
		      const struct script_sample *sample)
{
	char names[2048];

	if (!chains->is_compared(sample))
		return;
	print_chain(sample, names, sizeof(names));
	for (size_t i = 0; i < USERLAND_PROCESSES; i++) {
		if (strcmp(sample->comm, userland_processes[i]) != 0)
			continue;
		(is_whole(sample) ? chains->whole : chains->cut)[i][recording]++;
		if (is_whole(sample))
			stack_samples_add(chains->of[i], recording, names);
	}
}

/* All data needed from a recording, which is read once. */
struct reading {
	const struct userland_run *run;
	struct chains *chains;
	size_t count;
	unsigned int recording; /* 0: ours, 1: that of perf in the guest */
};

static void read_chain(void *context, const struct script_sample *sample)
{
	struct reading *reading = context;

	if (!reading->recording && !userland_run_has(reading->run, sample->comm, sample->tid))
		return;
	for (size_t i = 0; i < reading->count; i++)
		add_chain(&reading->chains[i], reading->recording, sample);
}

static void read_chains(struct reading *reading)
{
	const char *directory = reading->run->directory;
	char environment[128], options[256], file[128];

	snprintf(environment, sizeof(environment), "HOME=$PWD/%s", directory);
	snprintf(options, sizeof(options),
		 "--symfs " USERLAND_FILES " --kallsyms %s/.debug/\\[kernel.kallsyms]/*/kallsyms",
		 directory);
	for (reading->recording = 0; reading->recording < 2; reading->recording++) {
		snprintf(file, sizeof(file), "%s/%s", directory,
			 reading->recording ? "disk" : "perf.data");
		perf_script_read(environment, file, options, read_chain, reading);
	}
}

/* For stacks that only one recording has. */
static void print_difference(void *context, const size_t counts[2], const char *stack)
{
	int recording = counts[1] > counts[0];

	if (!counts[!recording] && counts[recording] > 4)
		printf("%s %s only: %zu of %s\n", (const char *)context,
		       recording ? "inside" : "outside", counts[recording], stack);
}

/* Adds ADDED with WEIGHT to SUM. */
static void add_agreement(struct stack_agreement *sum, const struct stack_agreement *added,
			  const double *weights)
{
	for (int k = 0; k < 2; k++)
		sum->known[k] += weights[k] * added->known[k];
	sum->overlap += weights[0] * added->overlap;
}

/*
 * If perf in the guest lost events, it does not know a process's mappings and truncates its chains.
 */
static bool is_comparable(const struct chains *chains, size_t process)
{
	const unsigned long *whole = chains->whole[process];

	return whole[0] >= 20 && whole[1] >= 20 && chains->cut[process][1] <= whole[1];
}

static struct stack_comparison compare_all(struct chains *chains)
{
	struct stack_comparison all = { 0 }, each[USERLAND_PROCESSES];

	for (size_t i = 0; i < USERLAND_PROCESSES; i++) {
		if (chains->cut[i][1] > chains->whole[i][1])
			printf("%s: the guest's perf lost the mappings of %s\n", chains->what,
			       userland_processes[i]);
		if (!is_comparable(chains, i))
			continue;
		each[i] = stack_samples_compare(chains->of[i]);
		stack_samples_each(chains->of[i], print_difference, unconst(chains->what));
		all.stacks += each[i].stacks;
		for (int k = 0; k < 2; k++)
			all.samples[k] += each[i].samples[k];
	}
	for (size_t i = 0; i < USERLAND_PROCESSES; i++) {
		double weights[2];

		if (!is_comparable(chains, i))
			continue;
		for (int k = 0; k < 2; k++)
			weights[k] = (double)each[i].samples[k] / (double)all.samples[k];
		add_agreement(&all.measured, &each[i].measured, weights);
		for (size_t k = 0; k < STACK_DEALS; k++)
			add_agreement(&all.dealt[k], &each[i].dealt[k], weights);
	}
	stack_comparison_sum_up(&all);
	return all;
}

/*
 * The lowest of a hundred random assignments is about two and a half standard deviations off; five
 * must not occur.
 */
static double bound_of(double expected, double least)
{
	return fmin(0.99, expected - 2 * (expected - least));
}

/* As good as two recordings of the same distribution, or better: both are of the same run. */
static void check_agreement(const struct chains *chains, const struct stack_comparison *all)
{
	static const char *const names[] = { "outside", "inside" };
	const char *what = chains->what;
	const struct stack_agreement *measured = &all->measured, *expected = &all->expected,
				     *least = &all->least;

	for (int k = 0; k < 2; k++) {
		printf("%s: of %zu from %s, %.2f %% are in the other recording; by chance %.2f %%, at least %.2f %%\n",
		       what, all->samples[k], names[k], 100 * measured->known[k],
		       100 * expected->known[k], 100 * least->known[k]);
		CHECK(measured->known[k] >= bound_of(expected->known[k], least->known[k]));
	}
	printf("%s: the distributions of %zu stacks overlap by %.2f %%; by chance by %.2f %%, at least %.2f %%; "
	       "that is %.2f %% of the expected overlap of two recordings of one distribution\n",
	       what, all->stacks, 100 * measured->overlap, 100 * expected->overlap,
	       100 * least->overlap, 100 * measured->overlap / expected->overlap);
	CHECK(measured->overlap >= bound_of(expected->overlap, least->overlap));
}

static void check_chains(struct chains *chains)
{
	struct stack_comparison all = compare_all(chains);
	unsigned long cut[2] = { 0 };

	for (size_t i = 0; i < USERLAND_PROCESSES; i++)
		for (int k = 0; k < 2; k++)
			cut[k] += chains->cut[i][k];
	printf("%s: %lu are truncated outside, %lu inside\n", chains->what, cut[0], cut[1]);
	CHECK(all.samples[0] >= chains->enough && all.samples[1] >= chains->enough / 2);
	/* From the time before the first tables were compiled: in the rig, some seconds. */
	CHECK(cut[0] * 10 <= all.samples[0]);
	check_agreement(chains, &all);
}

/* With the guest's own perf record --call-graph dwarf, under which the programs run. */
TEST(userland, chains_agree_with_perf_in_the_guest)
{
	struct chains chains[] = {
		{ .what = "user space", .is_compared = is_of_programs, .enough = USERLAND_ENOUGH },
		{ .what = "functions", .is_compared = is_of_functions, .enough = USERLAND_ENOUGH },
		{ .what = USERLAND_MODULE,
		  .is_compared = is_in_module,
		  .enough = USERLAND_ENOUGH / 10 },
	};
	struct userland_run run;
	struct reading reading = { .run = &run,
				   .chains = chains,
				   .count = sizeof(chains) / sizeof(chains[0]) };

	RIG_REQUIRED();
	if (!userland_run_open(&run, DEBIAN_LONGER, false))
		return;
	for (size_t i = 0; i < reading.count; i++)
		for (size_t k = 0; k < USERLAND_PROCESSES; k++)
			chains[i].of[k] = stack_samples_new();
	read_chains(&reading);
	for (size_t i = 0; i < reading.count; i++) {
		check_chains(&chains[i]);
		for (size_t k = 0; k < USERLAND_PROCESSES; k++)
			stack_samples_free(chains[i].of[k]);
	}
}
