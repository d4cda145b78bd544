// SPDX-License-Identifier: Apache-2.0
/*
 * How far the distributions of whole chains agree that kvmscope and the guest's own perf record
 * --call-graph dwarf have of one run, in the rig with Debian's 6.1: of a program that computes in
 * 24 ways, whose shares are known, and of one that makes system calls. Beside it, how far two
 * recordings of one and the same distribution would, which the number of samples decides: 99 % take
 * some ten thousand of each. What differs by more is told stack by stack.
 *
 * bench_stacks [DIRECTORY]	reads the recordings that an earlier one left in DIRECTORY
 *
 * It takes as long as KVMSCOPE_BENCH_SECONDS says, by default 240; a quarter of that for each
 * program.
 */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/rig/perf_script.h"
#include "tests/unit/quick_boot.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/stack_agreement.h"

#define DIRECTORY "build/bench/stacks"
#define DISK      "build/rig/stacks.ext4"
#define FILES     DISK ".files"

/* Not in step with each other, nor with the guest's tick; at more the guest would be busy with
 * being sampled.
 */
#define FREQUENCY_OUTSIDE 1999
#define FREQUENCY_INSIDE  1499

/* Standard deviations, of some hundreds of stacks. */
#define BEYOND_CHANCE 4

static const char *const sides[] = { "outside", "inside" };

/* The tests' readers say so what is wrong. */
void test_fail(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	exit(1);
}

/* --- the recording ---------------------------------------------------------------- */

static bool record(unsigned int seconds)
{
	char command[2048];

	snprintf(
		command, sizeof(command),
		"exec > build/bench/stacks.log 2>&1; set -e; "
		"tests/rig/perf-disk " DISK
		" tests/rig/guest-stacks build/rig/userland/computes build/rig/userland/calls; "
		"tests/rig/initrd --kernel 6.1 --output build/initrd/6.1-stacks.cpio "
		"--modules 'virtio_mmio virtio_console virtio_blk virtio-rng ext4 algif_hash rmd160'; "
		"tests/rig/rig --memory 2560 --trusted-tsc --timeout %u -- bash -c '"
		"d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; truncate -s 1G $d/disk; "
		"HOME=$d tests/rig/begin-when-known build/kvmscope run --pmu off --timeout %u --mem 1280M "
		"--stack-time 100ms -F %d --from-line \"stacks: waits\" --symfs " FILES
		" --no-disk-names "
		"--disk " DISK ",ro --disk $d/disk -o $d/perf.data "
		"--kernel build/cache/kernels/6.1/vmlinuz --initrd build/initrd/6.1-stacks.cpio "
		"--append \"console=ttyS0 quiet panic=-1 mitigations=off " QUICK_BOOT
		" kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt&&sh+/mnt/script+%u+%d\"'",
		seconds, seconds, FREQUENCY_OUTSIDE, seconds * 1000 / 4, FREQUENCY_INSIDE);
	return !system(command);
}

/* --- one part of the work --------------------------------------------------------- */

struct part {
	const char *what;
	bool (*has)(const struct script_sample *sample);
	struct stack_samples *samples;
	size_t whole[2], cut[2];
};

static bool is_interrupted(const struct script_sample *sample)
{
	for (size_t i = 0; i < sample->depth; i++)
		if (!strncmp(sample->frames[i].symbol, "asm_sysvec_", 11) ||
		    !strncmp(sample->frames[i].symbol, "asm_common_interrupt", 20))
			return true;
	return false;
}

static bool is_in_program(const struct script_sample *sample)
{
	return !strcmp(sample->comm, "computes") && script_sample_is_user(sample);
}

static bool is_in_system_call(const struct script_sample *sample)
{
	return !strcmp(sample->comm, "calls") && sample->depth && !script_sample_is_user(sample) &&
	       !is_interrupted(sample);
}

/*
 * Code that runs without interrupts, and what is behind it, where the guest's clock samples
 * instead; and the vDSO, to whose callers perf finds no way.
 */
static bool is_misplaced(const struct script_sample *sample)
{
	static const char *const functions[] = { "__schedule", "finish_task_switch.isra.0",
						 "syscall_exit_to_user_mode", "crng_make_state",
						 "internal_get_user_pages_fast" };
	static const char *const entries[] = { "entry_SYSCALL_64_after_hwframe", "do_syscall_64",
					       "syscall_enter_from_user_mode" };

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		if (!strcmp(sample->frames[0].symbol, entries[i]))
			return true;
	for (size_t i = 0; i < sample->depth; i++) {
		if (!strcmp(sample->frames[i].image, "[vdso]"))
			return true;
		for (size_t j = 0; j < sizeof(functions) / sizeof(functions[0]); j++)
			if (!strcmp(sample->frames[i].symbol, functions[j]))
				return true;
	}
	return false;
}

static bool is_in_work(const struct script_sample *sample)
{
	return is_in_system_call(sample) && !is_misplaced(sample);
}

/* Here no clock of the guest's own can sample: it is what the interrupt of such a clock does, too.
 */
static bool is_in_interrupt(const struct script_sample *sample)
{
	return !strcmp(sample->comm, "calls") && is_interrupted(sample);
}

static struct part parts[] = {
	{ .what = "user space", .has = is_in_program },
	{ .what = "system calls", .has = is_in_system_call },
	{ .what = "system calls with interrupts on", .has = is_in_work },
	{ .what = "interrupts of system calls", .has = is_in_interrupt },
};
#define PARTS   (sizeof(parts) / sizeof(parts[0]))
#define PROGRAM (&parts[0])

static void name_stack(const struct script_sample *sample, char *names, size_t size)
{
	size_t length = 0;

	for (size_t i = 0; i < sample->depth && length < size; i++) {
		const struct script_frame *frame = &sample->frames[i];
		const char *name =
			strcmp(frame->symbol, "[unknown]") ? frame->symbol : frame->image;

		length +=
			(size_t)snprintf(names + length, size - length, "%s%s", i ? ";" : "", name);
	}
}

static void take(void *context, const struct script_sample *sample)
{
	unsigned int side = *(unsigned int *)context;
	char names[2048];

	for (size_t i = 0; i < PARTS; i++) {
		if (!parts[i].has(sample))
			continue;
		if (strcmp(sample->frames[sample->depth - 1].symbol, "_start") != 0) {
			parts[i].cut[side]++;
			continue;
		}
		parts[i].whole[side]++;
		name_stack(sample, names, sizeof(names));
		stack_samples_add(parts[i].samples, side, names);
	}
}

static void read_recordings(const char *directory)
{
	char environment[256], options[512], file[256];

	snprintf(environment, sizeof(environment), "HOME=$(realpath %s)", directory);
	snprintf(options, sizeof(options),
		 "--symfs " FILES " --kallsyms %s/.debug/\\[kernel.kallsyms]/*/kallsyms",
		 directory);
	for (unsigned int side = 0; side < 2; side++) {
		snprintf(file, sizeof(file), "%s/%s", directory, side ? "disk" : "perf.data");
		perf_script_read(environment, file, options, take, &side);
	}
}

/* --- what they say ---------------------------------------------------------------- */

struct differences {
	const struct part *part;
	double beyond; /* the share of samples that are elsewhere, in stacks that differ beyond
			  chance */
};

static void tell_difference(void *context, const size_t counts[2], const char *stack)
{
	struct differences *differences = context;
	const size_t *totals = differences->part->whole;
	double shares[2], both = (double)(counts[0] + counts[1]) / (double)(totals[0] + totals[1]);
	double deviation =
		sqrt(both * (1 - both) * (1.0 / (double)totals[0] + 1.0 / (double)totals[1]));
	char what[512];

	for (int k = 0; k < 2; k++)
		shares[k] = (double)counts[k] / (double)totals[k];
	if (fabs(shares[0] - shares[1]) <= BEYOND_CHANCE * deviation)
		return;
	differences->beyond += fabs(shares[0] - shares[1]) / 2;
	snprintf(what, sizeof(what), "stacks: more outside than inside, %s: %s",
		 differences->part->what, stack);
	bench_print(what, 100 * (shares[0] - shares[1]), "points");
}

static void tell_counts(const struct part *part)
{
	char what[128];

	for (int k = 0; k < 2; k++) {
		snprintf(what, sizeof(what), "stacks: %s, whole chains from %s", part->what,
			 sides[k]);
		bench_print(what, (double)part->whole[k], "chains");
		snprintf(what, sizeof(what), "stacks: %s, chains from %s that are cut", part->what,
			 sides[k]);
		bench_print(what,
			    100 * (double)part->cut[k] /
				    fmax(1, (double)(part->whole[k] + part->cut[k])),
			    "%");
	}
}

static void tell(const struct part *part)
{
	struct differences differences = { .part = part };
	struct stack_comparison comparison;
	char what[128];

	tell_counts(part);
	if (!part->whole[0] || !part->whole[1])
		return;
	comparison = stack_samples_compare(part->samples);
	snprintf(what, sizeof(what), "stacks: %s, overlap of %zu stacks' distributions", part->what,
		 comparison.stacks);
	bench_print_beside(what, 100 * comparison.measured.overlap, "%", "by chance alone",
			   100 * comparison.expected.overlap);
	stack_samples_each(part->samples, tell_difference, &differences);
	snprintf(what, sizeof(what), "stacks: %s, samples elsewhere beyond chance", part->what);
	bench_print(what, 100 * differences.beyond, "%");
}

/* --- the truth of the program that computes --------------------------------------- */

struct truth {
	double samples[2]; /* in the loops that the ways lead to */
	double overlap[2];
	double known; /* the sum of the true shares of all stacks that there are */
};

/* The shares are in the functions' names: 4 callers of 3 callers, which call spin. */
static double true_share(const char *stack)
{
	static const char form[] = "spin_by_%u;spin;%*[a-z]_by_%u;%*[a-z]_by_%u;busy_run;main;%n";
	unsigned int by[3];
	int end = 0;

	if (sscanf(stack, form, &by[0], &by[1], &by[2], &end) != 3 || !end)
		return 0;
	return by[0] * by[1] * by[2] / (4.0 * 6 * 10);
}

static void count_ways(void *context, const size_t counts[2], const char *stack)
{
	struct truth *truth = context;
	double share = true_share(stack);

	truth->known += share;
	for (int k = 0; k < 2; k++)
		truth->samples[k] += share > 0 ? (double)counts[k] : 0;
}

static void add_overlap(void *context, const size_t counts[2], const char *stack)
{
	struct truth *truth = context;

	for (int k = 0; k < 2; k++)
		truth->overlap[k] += fmin(true_share(stack), (double)counts[k] / truth->samples[k]);
}

static void tell_truth(void)
{
	struct truth truth = { 0 };
	char what[128];

	stack_samples_each(PROGRAM->samples, count_ways, &truth);
	stack_samples_each(PROGRAM->samples, add_overlap, &truth);
	for (int k = 0; k < 2; k++) {
		snprintf(what, sizeof(what),
			 "stacks: user space, overlap of %s with the true shares of 24 ways",
			 sides[k]);
		bench_print(what, 100 * truth.overlap[k], "%");
	}
	if (fabs(truth.known - 1) > 1e-6)
		bench_fail("stacks: user space", "not all 24 ways have samples");
}

int main(int argc, char **argv)
{
	const char *seconds = getenv("KVMSCOPE_BENCH_SECONDS");

	if (system("tests/rig/rig --check > /dev/null 2>&1")) {
		bench_skip("stacks: agreement with the guest's own perf, rig", "no rig here");
		return 0;
	}
	if (argc < 2 && !record(seconds ? (unsigned int)atoi(seconds) : bench_size(240, 100))) {
		bench_fail("stacks: agreement with the guest's own perf, rig",
			   "see build/bench/stacks.log");
		return 1;
	}
	for (size_t i = 0; i < PARTS; i++)
		parts[i].samples = stack_samples_new();
	read_recordings(argc < 2 ? DIRECTORY : argv[1]);
	for (size_t i = 0; i < PARTS; i++)
		tell(&parts[i]);
	if (PROGRAM->whole[0] && PROGRAM->whole[1])
		tell_truth();
	for (size_t i = 0; i < PARTS; i++)
		stack_samples_free(parts[i].samples);
	return bench_status();
}
