// SPDX-License-Identifier: Apache-2.0
/*
 * A user land as Debian builds it (tests/rig/guest/userland: C with and without frame pointers, C++, shared
 * libraries, plug-ins that come and go, a stripped program, processes of some ms) in Debian's kernel, whose
 * programs say how they spent their time. Profiled with the agent in the guest, which is all that names its
 * functions then; and with nothing in the guest, by --symfs, while the guest's own perf records the
 * callchains of the same programs by DWARF.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/perf_script.h"
#include "tests/rig/rig.h"

#define DISK  "build/rig/userland.ext4"
#define FILES DISK ".files"
#define PROGRAMS                                                                                             \
	"build/rig/userland/{plain,bare,shapes,linked,liblibrary.so,stripped,plugins,left.so,right.so,storm,brief}"

/* Below $d; at the disk /dev/vdb the guest leaves what its perf recorded. */
#define GUEST(directory, options, arguments)                                                                 \
	"d=$PWD/" directory "; rm -rf $d; mkdir -p $d; truncate -s 48M $d/guest.data; "                      \
	"HOME=$d build/kvmscope run --pmu off --timeout 240 --mem 256M --cpus 2 -F 499 --stack-time 100ms "  \
	"--from-line 'guest-init: up' " options " -o $d/perf.data --disk " DISK                              \
	",ro --disk $d/guest.data --kernel %s --initrd %s "                                                  \
	"--append 'console=ttyS0 quiet panic=-1 "                                                            \
	"kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt+&&+sh+/mnt/script+" arguments "' < /dev/null"

/* For some 400 samples of each program. */
#define ROUNDS "50"

#define WITH_AGENT "build/rig/userland-agent"
#define WITHOUT    "build/rig/userland-nothing"

/* Samples of a machine that stands still most of the time. */
#define ENOUGH 1000

/* The functions that the programs are busy in, and the file that each is in. */
static const struct function {
	const char *process, *symbol, *image;
} functions[] = {
	{ "plain", "plain_add", "plain" },
	{ "plain", "plain_count", "plain" },
	{ "bare", "bare_spin", "bare" },
	{ "bare", "bare_compare_spin", "bare" },
	{ "shapes", "shapes::polygon<3>::draw", "shapes" },
	{ "shapes", "shapes::polygon<4>::draw", "shapes" },
	{ "shapes", "shapes::doubt", "shapes" },
	{ "linked", "library_twist", "liblibrary.so" },
	{ "linked", "library_fold", "liblibrary.so" },
	{ "plugins", "left_spin", "left.so" },
	{ "plugins", "right_spin", "right.so" },
	{ "brief", "brief_spin", "brief" },
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static const char *const processes[] = { "plain",    "bare",    "shapes", "linked",
					 "stripped", "plugins", "storm",  "brief" };
#define PROCESSES (sizeof(processes) / sizeof(processes[0]))

struct tally {
	unsigned long samples;        /* in user space, of the programs */
	unsigned long in_images;      /* of these, in an image that the process has */
	unsigned long untold;         /* in none that is known */
	unsigned long named, unnamed; /* in files that have names for all their code */
	unsigned long busy, charged;  /* in functions, and said to be of the process that has the function */
	unsigned long wrong;
	unsigned long in_function[FUNCTIONS];
};

static bool is_process(const char *comm)
{
	for (size_t i = 0; i < PROCESSES; i++)
		if (!strcmp(comm, processes[i]))
			return true;
	return false;
}

static int function_of(const char *symbol)
{
	for (size_t i = 0; i < FUNCTIONS; i++)
		if (!strcmp(symbol, functions[i].symbol))
			return (int)i;
	return -1;
}

/* What PROCESS may have mapped: itself, the libraries of its own, those of Debian, the vDSO. */
static bool may_have(const char *process, const char *image)
{
	if (!strcmp(image, "[vdso]") || !strncmp(image, "/mnt/lib/", 9) || !strncmp(image, "/mnt/lib64/", 11))
		return true;
	if (strncmp(image, "/mnt/bin/", 9) != 0)
		return false;
	for (size_t i = 0; i < FUNCTIONS; i++)
		if (!strcmp(functions[i].process, process) && !strcmp(functions[i].image, image + 9))
			return true;
	return !strcmp(image + 9, process);
}

static void say_wrong(struct tally *tally, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];

	if (tally->wrong++ < 20)
		FAIL_TEST("a sample of %s is said to be in %s (%s)", sample->comm, leaf->symbol, leaf->image);
}

/* Of a process of ours, in an image that it may have. */
static void count_name(struct tally *tally, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	bool known = strcmp(leaf->symbol, "[unknown]") != 0;
	int function = function_of(leaf->symbol);

	tally->in_images++;
	if (!strcmp(leaf->image, "/mnt/bin/stripped")) {
		/* Entries of the PLT have the names of dynamic symbols. */
		if (known && !strstr(leaf->symbol, "@plt"))
			say_wrong(tally, sample);
	} else if (!strncmp(leaf->image, "/mnt/bin/", 9)) {
		(*(known ? &tally->named : &tally->unnamed))++;
		if (function >= 0 && (strcmp(functions[function].process, sample->comm) != 0 ||
				      strcmp(functions[function].image, leaf->image + 9) != 0))
			say_wrong(tally, sample);
	} else if (function >= 0) {
		say_wrong(tally, sample);
	}
}

static void count(void *context, const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];
	struct tally *tally = context;
	int function;

	if (!script_sample_is_user(sample))
		return;
	function = function_of(leaf->symbol);
	if (function >= 0) {
		tally->busy++;
		tally->charged += !strcmp(functions[function].process, sample->comm);
		tally->in_function[function]++;
	}
	if (!is_process(sample->comm)) {
		if (function >= 0 && strncmp(sample->comm, "vcpu", 4) != 0)
			say_wrong(tally, sample);
		return;
	}
	tally->samples++;
	if (!strcmp(leaf->image, "[unknown]"))
		tally->untold++;
	else if (may_have(sample->comm, leaf->image))
		count_name(tally, sample);
	else
		say_wrong(tally, sample);
}

/* What the program itself said: "userland: truth PROCESS NAME=SHARE NAME=SHARE". NaN: nothing. */
static double truth_of(const char *output, const struct function *function)
{
	char line[64], name[64];
	const char *found, *end;

	snprintf(line, sizeof(line), "userland: truth %s ", function->process);
	snprintf(name, sizeof(name), " %s=", function->symbol);
	found = strstr(output, line);
	end = found ? strchr(found, '\n') : NULL;
	found = found ? strstr(found, name) : NULL;
	return found && end && found < end ? strtod(found + strlen(name), NULL) : NAN;
}

static unsigned long samples_of(const struct tally *tally, const char *process)
{
	unsigned long total = 0;

	for (size_t i = 0; i < FUNCTIONS; i++)
		total += strcmp(functions[i].process, process) ? 0 : tally->in_function[i];
	return total;
}

/* 3 points, or five standard deviations of what fewer samples can tell: those of an emulator come in bursts.
 */
static double bound_for(unsigned long samples)
{
	return fmax(0.03, 2.5 / sqrt((double)samples));
}

static void check_shares(const char *what, const struct tally *tally, const char *output)
{
	for (size_t i = 0; i < FUNCTIONS; i++) {
		unsigned long samples = samples_of(tally, functions[i].process);
		double truth = truth_of(output, &functions[i]);
		double share = (double)tally->in_function[i] / (double)samples;

		CHECK(tally->in_function[i] > 0);
		if (!strcmp(functions[i].process, "brief"))
			continue;
		printf("%s: %s %.1f %%, in truth %.1f %%, of %lu samples\n", what, functions[i].symbol,
		       100 * share, 100 * truth, samples);
		CHECK(fabs(share - truth) < bound_for(samples));
	}
}

static struct tally check_recording(const char *what, const char *directory, const char *options,
				    const char *output)
{
	struct tally tally = { 0 };
	char environment[256], file[256];

	snprintf(environment, sizeof(environment), "HOME=$PWD/%s", directory);
	snprintf(file, sizeof(file), "%s/perf.data", directory);
	perf_script_read(environment, file, options, count, &tally);
	printf("%s: %lu samples of the programs in user space: %lu in an image of theirs, %lu in none that is known; "
	       "%lu of %lu named; %lu of %lu by the right process; %lu wrong\n",
	       what, tally.samples, tally.in_images, tally.untold, tally.named, tally.named + tally.unnamed,
	       tally.charged, tally.busy, tally.wrong);
	CHECK(tally.samples >= ENOUGH);
	CHECK_EQUAL(tally.wrong, 0);
	CHECK(tally.charged * 100 >= tally.busy * 99);
	check_shares(what, &tally, output);
	return tally;
}

/* --- whole chains ----------------------------------------------------------------- */

#define CHAINS_MAX 4096

/* Names from the innermost frame to the outermost, with the weights that both recordings give them. */
struct chains {
	struct {
		char names[1024];
		double weights[2];
	} each[CHAINS_MAX];
	size_t count;
	double totals[2];
	double cut[2];          /* of chains that do not reach the program's begin */
	unsigned int recording; /* that is being read */
};

/* The dynamic linker prepares programs for some ms, and without names. */
static bool is_compared(const struct script_sample *sample)
{
	return script_sample_is_user(sample) && is_process(sample->comm) &&
	       strcmp(sample->comm, "storm") != 0 && strcmp(sample->comm, "brief") != 0 &&
	       !strstr(sample->frames[0].image, "/ld-linux") &&
	       strcmp(sample->frames[0].image, "[unknown]") != 0;
}

/* _start, which the stripped program has without a name. */
static bool is_whole(const struct script_sample *sample)
{
	const struct script_frame *root = &sample->frames[sample->depth - 1];

	return !strcmp(root->symbol, "_start") || !strcmp(root->image, "/mnt/bin/stripped");
}

static void print_chain(const struct script_sample *sample, char *names, size_t size)
{
	int length = snprintf(names, size, "%s", sample->comm);

	for (size_t i = 0; i < sample->depth && (size_t)length < size; i++) {
		const struct script_frame *frame = &sample->frames[i];
		bool known = strcmp(frame->symbol, "[unknown]") != 0;

		length += snprintf(names + length, size - (size_t)length, ";%s",
				   known ? frame->symbol : frame->image);
	}
}

static void add_chain(void *context, const struct script_sample *sample)
{
	struct chains *chains = context;
	char names[sizeof(chains->each[0].names)];
	size_t i;

	if (!is_compared(sample))
		return;
	if (!is_whole(sample)) {
		chains->cut[chains->recording] += sample->weight;
		return;
	}
	print_chain(sample, names, sizeof(names));
	for (i = 0; i < chains->count && strcmp(chains->each[i].names, names) != 0; i++)
		;
	if (i == CHAINS_MAX)
		return;
	if (i == chains->count) {
		memcpy(chains->each[i].names, names, sizeof(names));
		chains->count++;
	}
	chains->each[i].weights[chains->recording] += sample->weight;
	chains->totals[chains->recording] += sample->weight;
}

/* What both agree on, in two ways: the weight of chains that both have, and the part in which their shares
 * are the same. */
static void check_chains(const char *outside, const char *inside)
{
	struct chains *chains = calloc(1, sizeof(*chains));
	double common[2] = { 0 }, overlap = 0;

	REQUIRE(chains);
	perf_script_read("HOME=$PWD/" WITHOUT, outside, "--symfs " FILES, add_chain, chains);
	chains->recording = 1;
	perf_script_read("HOME=$PWD/" WITHOUT, inside, "--symfs " FILES, add_chain, chains);
	for (size_t i = 0; i < chains->count; i++) {
		double shares[2];

		for (int k = 0; k < 2; k++)
			shares[k] = chains->each[i].weights[k] / chains->totals[k];
		overlap += fmin(shares[0], shares[1]);
		for (int k = 0; k < 2 && shares[0] > 0 && shares[1] > 0; k++)
			common[k] += shares[k];
		if (fabs(shares[0] - shares[1]) > 0.002)
			printf("chains: %.1f %% outside, %.1f %% inside: %s\n", 100 * shares[0],
			       100 * shares[1], chains->each[i].names);
	}
	for (int k = 0; k < 2; k++)
		printf("chains %s: %.2f %% are cut\n", k ? "inside" : "outside",
		       100 * chains->cut[k] / (chains->cut[k] + chains->totals[k]));
	printf("chains: %.2f %% of those from outside are known inside, %.2f %% of those from inside outside; "
	       "the distributions overlap by %.1f %%\n",
	       100 * common[0], 100 * common[1], 100 * overlap);
	/* Those before the first tables were made. */
	CHECK(chains->cut[0] <= 0.1 * chains->totals[0]);
	/* Of some hundred samples, the rare chains are in one of both only. */
	CHECK(common[0] >= 0.96);
	CHECK(common[1] >= 0.96);
	CHECK(overlap >= 0.88);
	free(chains);
}

/* ---------------------------------------------------------------------------------- */

static bool make_disk(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 60, "tests/rig/perf-disk " DISK " tests/rig/guest-userland " PROGRAMS);
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/perf-disk: %s", result.errors);
	rig_result_free(&result);
	return made;
}

/* Runs the guest that COMMAND makes of kernel and initrd; false: it did not come to its end. */
static bool run_guest(struct rig_result *result, const char *command)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	bool ran;

	if (!kernel || !initrd || !make_disk())
		return false;
	rig_run(result, 500, command, kernel, initrd);
	ran = !result->status && strstr(result->output, "userland: end");
	if (!ran) {
		FAIL_TEST("%s\n%s", result->output, result->errors);
		rig_result_free(result);
	}
	return ran;
}

TEST(userland, is_named_rightly_with_the_agent)
{
	struct rig_result result;
	struct tally tally;

	RIG_REQUIRED();
	if (!run_guest(&result, GUEST(WITH_AGENT, "--agent=initrd", ROUNDS)))
		return;
	tally = check_recording("agent", WITH_AGENT, "", result.output);
	CHECK((tally.named + tally.unnamed) * 98 <= tally.named * 100);
	/* What the guest's kernel could not tell, as it stood still, samples know themselves. */
	CHECK(tally.samples * 98 <= tally.in_images * 100);
	rig_result_free(&result);
}

TEST(userland, has_its_images_and_whole_chains_with_nothing_in_the_guest)
{
	struct rig_result result;
	struct tally tally;

	RIG_REQUIRED();
	if (!run_guest(&result, GUEST(WITHOUT, "--symfs " FILES, ROUNDS "+record")))
		return;
	tally = check_recording("nothing", WITHOUT, "--symfs " FILES, result.output);
	CHECK(tally.samples * 95 <= tally.in_images * 100);
	CHECK((tally.named + tally.unnamed) * 98 <= tally.named * 100);
	check_chains(WITHOUT "/perf.data", WITHOUT "/guest.data");
	rig_result_free(&result);
}
