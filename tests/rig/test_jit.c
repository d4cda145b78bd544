/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT code: of our own JIT, which also replaces functions, and of node, once with nothing in the
 * guest and then with the agent. Functions have their known shares, and correct symbols while they
 * exist, and call chains pass through them in both directions.
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

#define GUEST                                                                                                         \
	"d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; "                                                              \
	"HOME=$d build/kvmscope run --sampler kick --agent=guest --pmu off --timeout 400 --mem 384M --cpus 2 -F 499 " \
	"--stack-time 100ms --from-line 'guest-init: up' --symfs " FILES                                              \
	" -o $d/perf.data --disk " DISK                                                                               \
	",ro --kernel %s --initrd %s --append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT " "                          \
	"kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt+&&+sh+/mnt/script+250' < /dev/null"

/* Of some 1000 in code that stays, on fast and busy machines alike: the programs run until then. */
#define ENOUGH 200

/* Bytes per function of jit: images have their functions at multiples of that. */
#define JIT_FUNCTION 128u

#define RUNS 2

static const char *const hot[] = { "hot_60", "hot_30", "hot_10" };
static const double truth[] = { 0.6, 0.3, 0.1 };

/*
 * Functions of tests/rig/guest/userland/hot.js, for each tier of V8 ("JS:*hot60
 * /mnt/bin/hot.js:5:15").
 */
static const char *const node_hot[] = { "hot60 ", "hot30 ", "hot10 " };

/* Of three functions. Their shares are those of the time: periods differ if the host is late. */
struct hot_samples {
	unsigned long count;
	double weights[3]; /* ns */
};

/* The results for one of the two runs of jit. */
struct tally {
	unsigned int pid;
	struct hot_samples hot;
	unsigned long jit, jit_named, turns;
	unsigned long staying, staying_named; /* in all functions that stay */
	unsigned long wrong_function;
	unsigned long called_back, whole; /* in hot_60; those with a chain up to main() */
	unsigned long wrong_chain;        /* those of them */
};

/* The results for one of the two runs of node. */
struct node_tally {
	unsigned int pid;
	double truth[3]; /* shares of the hot functions, as the program printed them */
	struct hot_samples hot;
	unsigned long jit, named;
	unsigned long after_first; /* the first symbolized one, with its symbol */
};

struct tallies {
	struct tally of[RUNS];
	struct node_tally node[RUNS];
	unsigned long wrong; /* in any other function */
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

/*
 * The loop of an even function is in the first half of its range, that of an odd one in the second
 * half; those of the functions that stay are in between.
 */
static bool is_even(unsigned long long in_function)
{
	return in_function >= 0x10 && in_function < 0x17;
}

static bool is_odd(unsigned long long in_function)
{
	return in_function >= 0x60 && in_function < 0x67;
}

static void count_turn(struct tally *tally, const struct script_frame *leaf)
{
	unsigned long long in_function = leaf->address % JIT_FUNCTION;
	bool odd = !strncmp(leaf->symbol, "odd_", 4);

	tally->turns++;
	/* Addresses at the beginning and end are common to both kinds. */
	if (is_even(in_function) && odd)
		tally->wrong_function++;
	if (is_odd(in_function) && !odd)
		tally->wrong_function++;
}

static void print_chain(const struct script_sample *sample)
{
	printf("a wrong chain:");
	for (size_t i = 0; i < sample->depth; i++)
		printf(" %#llx %s", (unsigned long long)sample->frames[i].address,
		       sample->frames[i].symbol);
	printf("\n");
}

/*
 * JIT, C without frame pointers, JIT, C: truncated until the program's tables have been compiled.
 */
static void count_chain(struct tally *tally, const struct script_sample *sample)
{
	static const char *const callers[] = { "hot_60", "call_back", "caller", "run", "main" };
	bool right = true;

	tally->called_back++;
	if (!has_symbol(sample, "main"))
		return;
	tally->whole++;
	for (size_t i = 0; i < 5; i++)
		right &= i < sample->depth && !strcmp(sample->frames[i].symbol, callers[i]);
	tally->wrong_chain += !right;
	if (!right)
		print_chain(sample);
}

static void add_hot(struct hot_samples *samples, int function, const struct script_sample *sample)
{
	samples->count++;
	samples->weights[function] += sample->weight;
}

static void count_jit(struct tally *tally, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	unsigned long long in_function = leaf->address % JIT_FUNCTION;
	bool named = is_in(leaf, "jitted-"), stays = !is_even(in_function) && !is_odd(in_function);

	tally->jit++;
	tally->jit_named += named;
	tally->staying += stays;
	tally->staying_named += stays && named;
	for (int i = 0; i < 3; i++)
		if (!strcmp(leaf->symbol, hot[i]))
			add_hot(&tally->hot, i, sample);
	if (!strncmp(leaf->symbol, "odd_", 4) || !strncmp(leaf->symbol, "even_", 5))
		count_turn(tally, leaf);
	if (!strcmp(leaf->symbol, "hot_60"))
		count_chain(tally, sample);
}

/* A function of the other program. */
static bool is_of_jit(const struct script_frame *leaf)
{
	for (int i = 0; i < 3; i++)
		if (!strcmp(leaf->symbol, hot[i]))
			return true;
	return !strncmp(leaf->symbol, "odd_", 4) || !strncmp(leaf->symbol, "even_", 5);
}

static void count_node(struct node_tally *node, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];

	node->jit++;
	node->named += is_in(leaf, "jitted-");
	node->after_first += node->named > 0;
	for (int i = 0; i < 3; i++)
		if (!strncmp(leaf->symbol, "JS:", 3) && strstr(leaf->symbol, node_hot[i]))
			add_hot(&node->hot, i, sample);
}

static void count(void *context, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	struct tallies *tallies = context;
	bool of_no_file = is_in(leaf, "jitted-") || is_in(leaf, "[anon]");

	if (!script_sample_is_user(sample) || !of_no_file)
		return;
	for (int i = 0; i < RUNS; i++) {
		if (!strcmp(sample->comm, "jit") && sample->tid == tallies->of[i].pid) {
			count_jit(&tallies->of[i], sample);
			return;
		}
		if (!strcmp(sample->comm, "node") && sample->tid == tallies->node[i].pid) {
			tallies->wrong += is_of_jit(leaf);
			count_node(&tallies->node[i], sample);
			return;
		}
	}
	tallies->wrong += is_in(leaf, "jitted-");
}

/* The precision of the truth, or five standard deviations if there are too few samples. */
static double bound_for(double share, unsigned long samples, double precision)
{
	return fmax(precision, 5 * sqrt(share * (1 - share) / (double)samples));
}

static void check_shares(const char *const names[3], const struct hot_samples *samples,
			 const double shares[3], double precision)
{
	double total = samples->weights[0] + samples->weights[1] + samples->weights[2];

	CHECK(samples->count >= ENOUGH);
	for (int i = 0; i < 3 && samples->count; i++) {
		double share = samples->weights[i] / total;

		printf("%s: %.1f %%, the truth is %.1f %%, of %lu samples\n", names[i], 100 * share,
		       100 * shares[i], samples->count);
		CHECK(fabs(share - shares[i]) < bound_for(shares[i], samples->count, precision));
	}
}

/* "jit: PID". Moves *OUTPUT past it. */
static bool read_jit(const char **output, struct tally *tally)
{
	const char *line = strstr(*output, "\njit: ");

	if (!line || sscanf(line, "\njit: %u", &tally->pid) != 1)
		return false;
	*output = line + 1;
	return true;
}

/* "node: PID TIME TIME TIME": of its hot60, hot30 and hot10. Moves *OUTPUT past it. */
static bool read_node(const char **output, struct node_tally *node)
{
	const char *line = strstr(*output, "\nnode: ");
	double times[3];

	if (!line || sscanf(line, "\nnode: %u %lf %lf %lf", &node->pid, &times[0], &times[1],
			    &times[2]) != 4)
		return false;
	for (int i = 0; i < 3; i++)
		node->truth[i] = times[i] / (times[0] + times[1] + times[2]);
	*output = line + 1;
	return true;
}

static bool make_disk(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 120,
		     "tests/rig/perf-disk " DISK
		     " tests/rig/guest-jit build/rig/userland/jit build/agent/kvmscope-agent "
		     "tests/rig/guest/userland/hot.js $(command -v node)");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/perf-disk: %s", result.errors);
	rig_result_free(&result);
	return made;
}

static void check_run(const struct tally *tally, const char *what, bool agent)
{
	printf("%s: %lu samples in its code, %lu of them symbolized; %lu of %lu in functions that stay; %lu of %lu chains through C and back reach main(); "
	       "%lu of functions that were replaced; %lu functions and %lu chains wrong\n",
	       what, tally->jit, tally->jit_named, tally->staying_named, tally->staying,
	       tally->whole, tally->called_back, tally->turns, tally->wrong_function,
	       tally->wrong_chain);
	CHECK_EQUAL(tally->wrong_function, 0);
	CHECK_EQUAL(tally->wrong_chain, 0);
	/*
	 * Between two scans it is uncertain which function is in a slot if they find different
	 * ones.
	 */
	CHECK(tally->jit_named * 100 >= tally->jit * 75);
	CHECK(tally->staying_named * 100 >= tally->staying * (agent ? 98 : 95));
	CHECK(tally->turns > 0);
	CHECK(tally->whole > 0);
	check_shares(hot, &tally->hot, truth, 0.03);
}

static void check_node(const struct node_tally *node, const char *what, bool agent)
{
	printf("node, %s: %lu samples in its code, %lu of them symbolized, of %lu after the first symbolized one\n",
	       what, node->jit, node->named, node->after_first);
	CHECK(node->named * 100 >= node->jit * 75);
	/* The agent keeps the map open to the end; the last scan from outside is earlier. */
	if (agent)
		CHECK(node->named * 100 >= node->after_first * 98);
	/* Its calls vary by some points if the machine is busy. */
	check_shares(node_hot, &node->hot, node->truth, 0.05);
}

static void check_recording(const char *output, bool has_node)
{
	static const char *const whats[RUNS] = { "nothing in the guest", "with the agent" };
	struct tallies tallies = { 0 };
	const char *rest = output;

	for (int i = 0; i < RUNS; i++) {
		REQUIRE(read_jit(&rest, &tallies.of[i]));
		REQUIRE(!has_node || read_node(&rest, &tallies.node[i]));
	}
	perf_script_read("HOME=$PWD/" DIRECTORY, DIRECTORY "/perf.data", "", count, &tallies);
	for (int i = 0; i < RUNS; i++) {
		check_run(&tallies.of[i], whats[i], i > 0);
		if (has_node)
			check_node(&tallies.node[i], whats[i], i > 0);
	}
	CHECK_EQUAL(tallies.wrong, 0);
}

TEST(jit, jit_functions_have_correct_symbols_with_and_without_the_agent)
{
	const char *kernel, *initrd;
	bool has_node = !system("command -v node > /dev/null");
	struct rig_result result;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd || !make_disk())
		return;
	rig_run_on(&result, RIG_TRUSTED_TSC, 500, GUEST, kernel, initrd);
	if (result.status || !strstr(result.output, "jit: end"))
		FAIL_TEST("%s\n%s", result.output, result.errors);
	else
		check_recording(result.output, has_node);
	rig_result_free(&result);
	if (!has_node)
		SKIP("node is not installed (Debian package nodejs); the rest passed");
}
