// SPDX-License-Identifier: Apache-2.0
/*
 * Code that is made at run time by a JIT of our own, which also puts functions in the place of others: once
 * with nothing in the guest, and then with the agent. Its functions have the shares that the program says,
 * their names while they are there and no others', and callchains go through them both ways.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/perf_script.h"
#include "tests/rig/rig.h"

#define DIRECTORY "build/rig/jit"
#define DISK      "build/rig/jit.ext4"
#define FILES     DISK ".files"

#define GUEST                                                                                                \
	"d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; "                                                     \
	"HOME=$d build/kvmscope run --agent=guest --pmu off --timeout 240 --mem 256M --cpus 2 -F 199 "       \
	"--stack-time 100ms --from-line 'guest-init: up' --symfs " FILES " -o $d/perf.data --disk " DISK     \
	",ro --kernel %s --initrd %s --append 'console=ttyS0 quiet panic=-1 "                                \
	"kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt+&&+sh+/mnt/script+150' < /dev/null"

/* Of some 350 in code that stays. The program ends by its work: where a machine is busy it has no fewer. */
#define ENOUGH 100

/* Bytes of a function of jit's: images have their functions at multiples of that. */
#define JIT_FUNCTION 128u

#define RUNS 2

static const char *const hot[] = { "hot_60", "hot_30", "hot_10" };

/* One of both runs of the program. */
struct tally {
	unsigned int pid;
	double truth[3]; /* of the hot ones' time */
	unsigned long jit, jit_named, hot[3], turns, wrong;
	unsigned long called_back, whole; /* hot_60; and with its chain up to main() */
};

static bool is_in(const struct script_frame *frame, const char *image)
{
	return !strncmp(frame->image, image, strlen(image));
}

static bool has_symbol(const struct script_sample *sample, const char *symbol)
{
	for (size_t i = 0; i < sample->depth; i++)
		if (!strcmp(sample->frames[i].symbol, symbol))
			return true;
	return false;
}

/* The loop of an even one lies in the first half of its range, that of an odd one in the second. */
static void count_turn(struct tally *tally, const struct script_frame *leaf)
{
	unsigned long long in_function = leaf->address % JIT_FUNCTION;
	bool odd = !strncmp(leaf->symbol, "odd_", 4);

	tally->turns++;
	/* Where both begin and end alike nothing tells them apart. */
	if (in_function >= 0x10 && in_function < 0x17 && odd)
		tally->wrong++;
	if (in_function >= 0x60 && in_function < 0x67 && !odd)
		tally->wrong++;
}

/* JIT, C without frame pointers, JIT, C: cut until the tables of the program have been made. */
static void count_chain(struct tally *tally, const struct script_sample *sample)
{
	static const char *const callers[] = { "hot_60", "call_back", "caller", "run", "main" };

	tally->called_back++;
	if (!has_symbol(sample, "main"))
		return;
	tally->whole++;
	for (size_t i = 0; i < 5; i++)
		tally->wrong += i >= sample->depth || strcmp(sample->frames[i].symbol, callers[i]) != 0;
}

static void count_jit(struct tally *tally, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];

	tally->jit++;
	tally->jit_named += is_in(leaf, "jitted-");
	for (int i = 0; i < 3; i++)
		tally->hot[i] += !strcmp(leaf->symbol, hot[i]);
	if (!strncmp(leaf->symbol, "odd_", 4) || !strncmp(leaf->symbol, "even_", 5))
		count_turn(tally, leaf);
	if (!strcmp(leaf->symbol, "hot_60"))
		count_chain(tally, sample);
}

static void count(void *context, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	struct tally *tally = context; /* of both runs */
	bool of_no_file = is_in(leaf, "jitted-") || is_in(leaf, "[anon]");

	if (!script_sample_is_user(sample) || !of_no_file)
		return;
	for (int i = 0; i < RUNS; i++) {
		if (!strcmp(sample->comm, "jit") && sample->tid == tally[i].pid) {
			count_jit(&tally[i], sample);
			return;
		}
	}
	tally[0].wrong += is_in(leaf, "jitted-");
}

static void check_shares(const struct tally *tally)
{
	unsigned long total = tally->hot[0] + tally->hot[1] + tally->hot[2];

	CHECK(total >= ENOUGH);
	for (int i = 0; i < 3 && total; i++) {
		double share = (double)tally->hot[i] / (double)total;

		printf("%s: %.1f %%, in truth %.1f %%, of %lu samples\n", hot[i], 100 * share,
		       100 * tally->truth[i], total);
		CHECK(fabs(share - tally->truth[i]) < fmax(0.03, 2.5 / sqrt((double)total)));
	}
}

/* "jit: PID TIME TIME TIME TIME": of hot_60, hot_30, hot_10 and those that take turns. Moves *OUTPUT behind
 * it. */
static bool read_truth(const char **output, struct tally *tally)
{
	const char *line = strstr(*output, "\njit: ");
	double times[3];

	if (!line || sscanf(line, "\njit: %u %lf %lf %lf", &tally->pid, &times[0], &times[1], &times[2]) != 4)
		return false;
	for (int i = 0; i < 3; i++)
		tally->truth[i] = times[i] / (times[0] + times[1] + times[2]);
	*output = line + 1;
	return true;
}

static bool make_disk(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 60,
		     "tests/rig/perf-disk " DISK
		     " tests/rig/guest-jit build/rig/userland/jit build/agent/kvmscope-agent");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/perf-disk: %s", result.errors);
	rig_result_free(&result);
	return made;
}

static void check_run(const struct tally *tally, const char *what)
{
	printf("%s: %lu samples in its code, %lu of them named; %lu of %lu chains through C and back reach main(); "
	       "%lu of functions that took turns; %lu wrong\n",
	       what, tally->jit, tally->jit_named, tally->whole, tally->called_back, tally->turns,
	       tally->wrong);
	CHECK_EQUAL(tally->wrong, 0);
	CHECK(tally->jit_named * 100 >= tally->jit * 75);
	CHECK(tally->turns > 0);
	CHECK(tally->whole > 0);
	check_shares(tally);
}

static void check_recording(const char *output)
{
	struct tally runs[RUNS] = { 0 };

	for (int i = 0; i < RUNS; i++)
		REQUIRE(read_truth(&output, &runs[i]));
	perf_script_read("HOME=$PWD/" DIRECTORY, DIRECTORY "/perf.data", "", count, runs);
	check_run(&runs[0], "nothing in the guest");
	check_run(&runs[1], "with the agent");
}

TEST(jit, functions_made_at_run_time_are_named_rightly_with_and_without_the_agent)
{
	const char *kernel, *initrd;
	struct rig_result result;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd || !make_disk())
		return;
	rig_run(&result, 500, GUEST, kernel, initrd);
	if (result.status || !strstr(result.output, "jit: end"))
		FAIL_TEST("%s\n%s", result.output, result.errors);
	else
		check_recording(result.output);
	rig_result_free(&result);
}
