/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples by BPF lose nothing that those of kicks have: both sample the user land of Debian's
 * kernel at the same time (tests/rig/samplers-host: C with and without frame pointers, C++ with
 * exceptions, shared libraries, plug-ins, a stripped program, processes of some ms, a program in
 * Go, and a kernel module).
 */
#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/rig.h"
#include "tests/rig/userland_run.h"
#include "tests/unit/stack_agreement.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/report/profile_stacks.h"

#define DIRECTORY "build/rig/samplers"
#define LINKER    "/mnt/lib64/ld-linux-x86-64.so.2"
#define STRIPPED  "/mnt/bin/stripped"
#define GO        "gospin"
/* What their mangled names contain. */
static const char *const in_shapes[] = { "polygon", "doubt" };

/* Process IDs of the guest are below. */
#define PIDS 2048

enum sampler { BPF, KICKS, SAMPLERS };
static const char *const names[] = { "bpf", "kick" };

/* Chains that reach the outermost frame, and shorter ones. */
struct chains {
	unsigned long whole, cut;
};

struct recording {
	struct chains functions; /* in the functions that the programs are busy in */
	struct chains others;    /* in all other code of the programs */
	unsigned long in_cgroup, in_go, samples;
	uint32_t parents[PIDS]; /* by process ID; 0: not recorded */
};

struct comparison {
	unsigned int from; /* the first process ID of the second run */
	struct recording of[SAMPLERS];
	struct stack_samples *stacks; /* whole ones, in FUNCTIONS */
};

/* The file offset of the entry point of PATH, a file of the guest. */
static uint64_t entry_of(const char *path)
{
	Elf64_Ehdr header = { 0 };
	char file[128];
	FILE *from;

	snprintf(file, sizeof(file), USERLAND_FILES "%s", path);
	from = fopen(file, "r");
	if (!from)
		return 0;
	CHECK_EQUAL(fread(&header, sizeof(header), 1, from), 1);
	fclose(from);
	return header.e_entry;
}

/* FRAME is in unsymbolized code, in the first instructions of the file at PATH. */
static bool is_at_entry(const struct profile_frame *frame, const char *path)
{
	return !strcmp(frame->image, strrchr(path, '/') + 1) &&
	       ((frame->address - entry_of(path)) & 4095) < 64;
}

/* Up to the start of the program or of the dynamic linker. */
static bool is_whole(const struct profile_stack *stack)
{
	const struct profile_frame *root = stack->frames[stack->depth - 1];

	if (root->symbol &&
	    (!strcmp(root->symbol, "_start") || !strcmp(root->symbol, "_dl_start_user") ||
	     !strcmp(root->symbol, "runtime.main")))
		return true;
	return is_at_entry(root, LINKER) || is_at_entry(root, STRIPPED);
}

static bool is_in_function(const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];
	int function = leaf->symbol ? userland_function_of(leaf->symbol) : -1;

	if (!strcmp(stack->comm, GO))
		return leaf->symbol && !strcmp(leaf->symbol, "main.goSpin");
	for (size_t i = 0; leaf->symbol && i < 2; i++)
		if (!strcmp(stack->comm, "shapes") && strstr(leaf->symbol, in_shapes[i]))
			return true;
	return !strcmp(leaf->image, USERLAND_MODULE) ||
	       (function >= 0 && !strcmp(userland_functions[function].process, stack->comm));
}

/* Threads of Go's run time begin in many places. */
static bool is_compared(const struct comparison *comparison, const struct profile_stack *stack)
{
	bool go = !strcmp(stack->comm, GO);

	return stack->pid >= comparison->from &&
	       (go ? is_in_function(stack) : userland_is_process(stack->comm));
}

/* From the outermost frame on. */
static void print_stack(const struct profile_stack *stack, char *text, size_t size)
{
	int length = snprintf(text, size, "%s", stack->comm);

	for (size_t i = stack->depth; i-- > 0 && (size_t)length < size;) {
		const struct profile_frame *frame = stack->frames[i];

		length += snprintf(text + length, size - (size_t)length, ";%s",
				   frame->symbol ? frame->symbol : frame->image);
	}
}

static void count_stack(struct comparison *comparison, enum sampler sampler,
			const struct profile_stack *stack)
{
	struct recording *recording = &comparison->of[sampler];
	bool whole = is_whole(stack), function = is_in_function(stack);
	struct chains *chains = function ? &recording->functions : &recording->others;
	char text[2048];

	recording->samples += stack->samples;
	recording->in_cgroup += strcmp(stack->cgroup, "/again") ? 0 : stack->samples;
	*(whole ? &chains->whole : &chains->cut) += stack->samples;
	recording->in_go += function && !strcmp(stack->comm, GO) ? stack->samples : 0;
	if (!function)
		return;
	print_stack(stack, text, sizeof(text));
	if (!whole)
		printf("%s, cut: %llu of %s\n", names[sampler], (unsigned long long)stack->samples,
		       text);
	for (uint64_t i = 0; whole && i < stack->samples; i++)
		stack_samples_add(comparison->stacks, sampler, text);
}

static void read_recording(struct comparison *comparison, enum sampler sampler)
{
	char input[64];
	const struct profile_options options = { .input = input,
						 .sources.buildid_dir = DIRECTORY "/.debug",
						 .sources.symfs = USERLAND_FILES,
						 .event = "0",
						 .vcpu = -1 };
	struct profile *profile;

	snprintf(input, sizeof(input), DIRECTORY "/%s.data", names[sampler]);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (is_compared(comparison, stack))
			count_stack(comparison, sampler, stack);
	}
	profile_free(profile);
}

static int note_parent(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		       uint32_t parent_tid, uint64_t time, bool before)
{
	struct recording *recording = context;

	if (pid < PIDS && pid != parent_pid)
		recording->parents[pid] = parent_pid;
	return 0;
}

static void read_parents(struct comparison *comparison, enum sampler sampler)
{
	const struct perf_data_events events = { .fork = note_parent,
						 .context = &comparison->of[sampler] };
	struct perf_data_reader *reader;
	char input[64];

	snprintf(input, sizeof(input), DIRECTORY "/%s.data", names[sampler]);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, input), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

/* Of the processes of the second run that both have seen. */
static void check_parents(const struct comparison *comparison)
{
	const uint32_t *bpf = comparison->of[BPF].parents, *kicks = comparison->of[KICKS].parents;
	unsigned int compared = 0;

	for (unsigned int pid = comparison->from; pid < PIDS; pid++) {
		if (!bpf[pid] || !kicks[pid])
			continue;
		compared++;
		CHECK_EQUAL(bpf[pid], kicks[pid]);
	}
	printf("%u processes have the same parent\n", compared);
	CHECK(compared >= 8); /* the programs */
}

static double whole_share(const struct chains *chains)
{
	return (double)chains->whole / (double)(chains->whole + chains->cut);
}

static void print_recording(const struct recording *recording, enum sampler sampler)
{
	printf("%s: of %lu samples in functions %.2f %% are whole, of %lu others %.2f %%; %.2f %% have their cgroup; %lu in Go\n",
	       names[sampler], recording->functions.whole + recording->functions.cut,
	       100 * whole_share(&recording->functions),
	       recording->others.whole + recording->others.cut,
	       100 * whole_share(&recording->others),
	       100 * (double)recording->in_cgroup / (double)recording->samples, recording->in_go);
}

/* Three standard deviations of the difference of two such shares. */
static double deviation(const struct chains *one, const struct chains *other)
{
	double share = whole_share(other),
	       counts[] = { (double)(one->whole + one->cut), (double)(other->whole + other->cut) };

	return 3 * sqrt(share * (1 - share) * (1 / counts[0] + 1 / counts[1]));
}

static void check_stacks(struct comparison *comparison)
{
	struct stack_comparison stacks = stack_samples_compare(comparison->stacks);

	printf("%.2f %% of the whole chains by BPF are in the recording by kicks (by chance %.2f %%), %.2f %% the other way round (%.2f %%)\n",
	       100 * stacks.measured.known[BPF], 100 * stacks.expected.known[BPF],
	       100 * stacks.measured.known[KICKS], 100 * stacks.expected.known[KICKS]);
	for (int i = 0; i < SAMPLERS; i++)
		CHECK(stacks.measured.known[i] >= fmin(0.99, stacks.least.known[i]));
}

static void check_recordings(struct comparison *comparison)
{
	const struct recording *bpf = &comparison->of[BPF], *kicks = &comparison->of[KICKS];

	for (int i = 0; i < SAMPLERS; i++) {
		print_recording(&comparison->of[i], (enum sampler)i);
		REQUIRE(comparison->of[i].functions.whole >= 300);
		CHECK(comparison->of[i].in_go >= 20);
	}
	CHECK(whole_share(&bpf->functions) >= 0.99);
	CHECK(whole_share(&bpf->others) >=
	      whole_share(&kicks->others) - 0.01 - deviation(&bpf->others, &kicks->others));
	CHECK(bpf->in_cgroup * 100 >= bpf->samples * 99);
	check_stacks(comparison);
	check_parents(comparison);
}

static bool record(struct comparison *comparison)
{
	const char *kernel = rig_kernel("6.1"), *initrd, *again;
	struct rig_result result;

	if (!kernel || !debian_recording_make_disk())
		return false;
	initrd = debian_recording_initrd("6.1");
	if (!initrd)
		return false;
	rig_run_on(&result, RIG_TRUSTED_TSC, 400,
		   "tests/rig/samplers-host $PWD/" DIRECTORY " %s %s " USERLAND_DISK, kernel,
		   initrd);
	again = strstr(result.output, "userland: again from ");
	if (result.status || !again ||
	    sscanf(again, "userland: again from %u", &comparison->from) != 1) {
		FAIL_TEST("the guest did not end well: %s\n%s", result.output, result.errors);
		again = NULL;
	}
	rig_result_free(&result);
	return again != NULL;
}

TEST(samplers, chains_and_tasks_by_bpf_are_those_by_kicks)
{
	static struct comparison comparison;

	RIG_REQUIRED();
	if (!record(&comparison))
		return;
	comparison.stacks = stack_samples_new();
	for (int i = 0; i < SAMPLERS; i++) {
		read_recording(&comparison, (enum sampler)i);
		read_parents(&comparison, (enum sampler)i);
	}
	check_recordings(&comparison);
	stack_samples_free(comparison.stacks);
}
