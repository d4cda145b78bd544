/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement between the distributions of whole call chains that kvmscope and perf record
 * --call-graph dwarf inside the guest record during the same run, in the rig with Debian's 6.1: for
 * a program that computes on 24 call paths with known shares, and for one that makes system calls.
 * Baseline: the expected agreement of two recordings of the same distribution, which depends on the
 * number of samples: 99 % requires some ten thousand in each. Larger differences are printed stack
 * by stack.
 *
 * bench_stacks [DIRECTORY] reads the recordings that an earlier run left in DIRECTORY.
 *
 * The duration is KVMSCOPE_BENCH_SECONDS, 240 by default; each program runs for a quarter of it.
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

/*
 * Not synchronous with each other or with the guest's tick; higher frequencies would keep the guest
 * busy with being sampled.
 */
#define FREQUENCY_OUTSIDE 1999
#define FREQUENCY_INSIDE  1499

/* Standard deviations; there are some hundreds of stacks. */
#define BEYOND_CHANCE 4

static const char *const sides[] = { "outside", "inside" };

/* The readers of the tests report errors with this function. */
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

/* Each program runs for a quarter of SECONDS, in a short run for 3 s. */
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
		"HOME=$d tests/rig/begin-when-known build/kvmscope run --sampler kick --pmu off --timeout %u --mem 1280M "
		"--stack-time 100ms -F %d --from-line \"stacks: waits\" --symfs " FILES
		" --no-disk-names "
		"--disk " DISK ",ro --disk $d/disk -o $d/perf.data "
		"--kernel build/cache/kernels/6.1/vmlinuz --initrd build/initrd/6.1-stacks.cpio "
		"--append \"console=ttyS0 quiet panic=-1 mitigations=off " QUICK_BOOT
		" kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt&&sh+/mnt/script+%d+%d\"'",
		seconds, seconds, FREQUENCY_OUTSIDE, bench_size((int)seconds * 1000 / 4, 3000),
		FREQUENCY_INSIDE);
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
 * Code that runs with interrupts off, and the code after it, in which the guest's clock samples
 * instead; and the vDSO, whose callers perf does not find.
 */
static bool is_sampled_late(const struct script_sample *sample)
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
	return is_in_system_call(sample) && !is_sampled_late(sample);
}

/* The guest's own clock cannot sample here: the same code runs in the interrupt of that clock. */
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

static void count_sample(void *context, const struct script_sample *sample)
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
		perf_script_read(environment, file, options, count_sample, &side);
	}
}

/* --- results ---------------------------------------------------------------------- */

struct differences {
	const struct part *part;
	double beyond; /* the share of samples in other stacks, counting stacks that differ
			* beyond chance */
};

static void print_difference(void *context, const size_t counts[2], const char *stack)
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

static void print_counts(const struct part *part)
{
	char what[128];

	for (int k = 0; k < 2; k++) {
		snprintf(what, sizeof(what), "stacks: %s, whole chains from %s", part->what,
			 sides[k]);
		bench_print(what, (double)part->whole[k], "chains");
		snprintf(what, sizeof(what), "stacks: %s, truncated chains from %s", part->what,
			 sides[k]);
		bench_print(what,
			    100 * (double)part->cut[k] /
				    fmax(1, (double)(part->whole[k] + part->cut[k])),
			    "%");
	}
}

static void print_part(const struct part *part)
{
	struct differences differences = { .part = part };
	struct stack_comparison comparison;
	char what[128];

	print_counts(part);
	if (!part->whole[0] || !part->whole[1])
		return;
	comparison = stack_samples_compare(part->samples);
	snprintf(what, sizeof(what), "stacks: %s, overlap of %zu stacks' distributions", part->what,
		 comparison.stacks);
	bench_print_relative(what, 100 * comparison.measured.overlap, "%", "by chance alone",
			     100 * comparison.expected.overlap);
	stack_samples_each(part->samples, print_difference, &differences);
	snprintf(what, sizeof(what), "stacks: %s, samples in other stacks beyond chance",
		 part->what);
	bench_print(what, 100 * differences.beyond, "%");
}

/* --- the truth of the program that computes --------------------------------------- */

struct truth {
	double samples[2]; /* in the loops at the ends of the paths */
	double overlap[2];
	double known; /* the sum of the true shares of all stacks found */
};

/* The shares are part of the functions' names: 4 callers of 3 callers, which call spin. */
static double true_share(const char *stack)
{
	static const char form[] = "spin_by_%u;spin;%*[a-z]_by_%u;%*[a-z]_by_%u;busy_run;main;%n";
	unsigned int by[3];
	int end = 0;

	if (sscanf(stack, form, &by[0], &by[1], &by[2], &end) != 3 || !end)
		return 0;
	return by[0] * by[1] * by[2] / (4.0 * 6 * 10);
}

static void count_paths(void *context, const size_t counts[2], const char *stack)
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

static void print_truth(void)
{
	struct truth truth = { 0 };
	char what[128];

	stack_samples_each(PROGRAM->samples, count_paths, &truth);
	stack_samples_each(PROGRAM->samples, add_overlap, &truth);
	for (int k = 0; k < 2; k++) {
		snprintf(what, sizeof(what),
			 "stacks: user space, overlap of %s with the true shares of 24 paths",
			 sides[k]);
		bench_print(what, 100 * truth.overlap[k], "%");
	}
	/* A short run may have no sample of the rarest paths. */
	if (bench_size(true, false) && fabs(truth.known - 1) > 1e-6)
		bench_fail("stacks: user space", "not all 24 paths have samples");
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
		print_part(&parts[i]);
	if (PROGRAM->whole[0] && PROGRAM->whole[1])
		print_truth();
	for (size_t i = 0; i < PARTS; i++)
		stack_samples_free(parts[i].samples);
	return bench_status();
}
