/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/exception_chains.h"

#include <glob.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/kernel_calls.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

#define PROGRAM_START 0x38000000ull
#define PROGRAM_END   0x39000000ull
#define WRONG_SHOWN   20 /* printed by a failed test */

enum exception {
	EXCEPTION_BREAKPOINT,
	EXCEPTION_NMI,
	EXCEPTION_OTHER, /* also the entry of system calls */
	EXCEPTIONS,
};

/* A chain: both parts, and the result of the checks. */
struct chain {
	const uint64_t *kernel, *user; /* innermost first */
	size_t kernel_depth, user_depth;
	unsigned int in_kernel[EXCEPTIONS],
		in_user[EXCEPTIONS]; /* exceptions in the chain, by the interrupted code */
	bool wrong;
};

struct tally {
	struct kernel_code kernel;
	struct symbols *program;
	uint64_t kernel_breakpoint, user_breakpoint;         /* their addresses */
	uint64_t in_kernel[EXCEPTIONS], in_user[EXCEPTIONS]; /* whole chains with such exceptions */
	uint64_t nested; /* whole chains with an NMI and a breakpoint in the kernel */
	uint64_t steps[KERNEL_STEPS];
	uint64_t cut, user_cut, wrong;
};

/* --- the kernel's part -------------------------------------------------------------- */

static enum exception exception_of(const char *entry)
{
	if (!strncmp(entry, "asm_exc_debug", 13))
		return EXCEPTION_BREAKPOINT;
	/* The other two are labels inside of the handler of NMIs. */
	if (!strncmp(entry, "asm_exc_nmi", 11) || !strcmp(entry, "first_nmi") ||
	    strstr(entry, "repeat_nmi"))
		return EXCEPTION_NMI;
	return EXCEPTION_OTHER;
}

/* Records that the entry at ADDRESS interrupted the code at NEXT. */
static void count_entry(const struct tally *tally, struct chain *chain, uint64_t address,
			uint64_t next, bool in_user)
{
	enum exception exception;
	struct symbol entry;

	if (!symbols_find(tally->kernel.symbols, address, &entry))
		return;
	exception = exception_of(entry.name);
	(in_user ? chain->in_user : chain->in_kernel)[exception]++;
	chain->wrong |= exception == EXCEPTION_BREAKPOINT &&
			next != (in_user ? tally->user_breakpoint : tally->kernel_breakpoint);
}

static void walk_kernel(struct tally *tally, struct chain *chain, uint64_t *steps)
{
	bool interrupted = true;

	for (size_t i = 0; i + 1 < chain->kernel_depth; i++) {
		enum kernel_step step = kernel_step(&tally->kernel, chain->kernel[i], interrupted,
						    chain->kernel[i + 1]);

		if (step == KERNEL_STEP_INTERRUPTED)
			count_entry(tally, chain, chain->kernel[i] - !interrupted,
				    chain->kernel[i + 1], false);
		chain->wrong |= step == KERNEL_STEP_WRONG;
		steps[step]++;
		interrupted = step == KERNEL_STEP_INTERRUPTED;
	}
	if (chain->kernel_depth && chain->user_depth)
		count_entry(tally, chain, chain->kernel[chain->kernel_depth - 1] - !interrupted,
			    chain->user[0], true);
}

/* --- the program's part ------------------------------------------------------------ */

static const char *caller_of(const char *function)
{
	static const char *const calls[][2] = {
		{ "ask_kernel", "both" },  { "own_breakpoint", "both" }, { "both", "large_frame" },
		{ "large_frame", "work" }, { "work", "main" },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(function, calls[i][0]))
			return calls[i][1];
	return NULL;
}

/*
 * Checks that each function is called by the next one. The other calls of main and those of the C
 * library are not checked.
 */
static void walk_user(const struct tally *tally, struct chain *chain, bool *whole)
{
	const char *caller = NULL;

	*whole = false;
	for (size_t i = 0; i < chain->user_depth; i++) {
		struct symbol function;

		if (chain->user[i] < PROGRAM_START || chain->user[i] >= PROGRAM_END ||
		    !symbols_find(tally->program, chain->user[i] - !!i, &function)) {
			chain->wrong = true;
			return;
		}
		chain->wrong |= caller && strcmp(caller, function.name) != 0;
		caller = caller_of(function.name);
		*whole = !strcmp(function.name, "_start");
	}
}

/* --- all chains -------------------------------------------------------------------- */

static void show(const struct tally *tally, const char *what, const struct chain *chain)
{
	printf("%s:", what);
	kernel_print_frames(tally->kernel.symbols, chain->kernel, chain->kernel_depth);
	printf(" |");
	kernel_print_frames(tally->program, chain->user, chain->user_depth);
	printf("\n");
}

/* Chains that end at the start of a task or CPU have no program. */
static bool is_of_program(const struct tally *tally, const struct chain *chain)
{
	struct symbol outermost;

	if (!chain->kernel_depth ||
	    !symbols_find(tally->kernel.symbols, chain->kernel[chain->kernel_depth - 1],
			  &outermost))
		return false;
	return !strstr(outermost.name, "ret_from_fork") && !strstr(outermost.name, "_startup_64");
}

static void count_whole(struct tally *tally, const struct chain *chain)
{
	for (int i = 0; i < EXCEPTIONS; i++) {
		tally->in_kernel[i] += chain->in_kernel[i] > 0;
		tally->in_user[i] += chain->in_user[i] > 0;
	}
	tally->nested += chain->in_kernel[EXCEPTION_NMI] && chain->in_kernel[EXCEPTION_BREAKPOINT];
}

static bool has_exception(const struct chain *chain)
{
	return chain->in_kernel[EXCEPTION_BREAKPOINT] || chain->in_user[EXCEPTION_BREAKPOINT] ||
	       chain->in_kernel[EXCEPTION_NMI] || chain->in_user[EXCEPTION_NMI];
}

static void count_chain(struct tally *tally, struct chain *chain)
{
	uint64_t steps[KERNEL_STEPS] = { 0 };
	bool whole;

	walk_kernel(tally, chain, steps);
	if (!has_exception(chain) || !is_of_program(tally, chain))
		return;
	walk_user(tally, chain, &whole);
	for (int i = 0; i < KERNEL_STEPS; i++)
		tally->steps[i] += steps[i];
	if (chain->wrong) {
		if (tally->wrong++ < WRONG_SHOWN)
			show(tally, "wrong", chain);
	} else if (!chain->user_depth) {
		if (tally->cut++ < WRONG_SHOWN)
			show(tally, "cut", chain);
	} else {
		tally->user_cut += !whole;
		count_whole(tally, chain);
	}
}

/* The addresses after MARKER, up to the next marker. */
static const uint64_t *find_part(const struct perf_data_sample *sample, uint64_t marker,
				 size_t *depth)
{
	const uint64_t *part = NULL;

	*depth = 0;
	for (size_t i = 0; i < sample->callchain_size; i++) {
		if (part && sample->callchain[i] >= (uint64_t)PERF_CONTEXT_MAX)
			break;
		if (part)
			++*depth;
		else if (sample->callchain[i] == marker)
			part = sample->callchain + i + 1;
	}
	return part;
}

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct chain chain = { 0 };

	chain.kernel = find_part(sample, (uint64_t)PERF_CONTEXT_KERNEL, &chain.kernel_depth);
	chain.user = find_part(sample, (uint64_t)PERF_CONTEXT_USER, &chain.user_depth);
	count_chain(context, &chain);
	return 0;
}

static void count_recording(struct tally *tally, const char *directory)
{
	const struct perf_data_events events = { .sample = count_sample, .context = tally };
	char path[256];

	snprintf(path, sizeof(path), "%s/perf.data", directory);
	recording_replay(path, &events);
}

/* --- the recording ------------------------------------------------------------------ */

static bool open_kernel(struct tally *tally, const char *directory, const char *code_directory)
{
	char kallsyms[256], disk[256];
	struct symbol function;
	glob_t found;
	bool ok;

	snprintf(kallsyms, sizeof(kallsyms), "%s/.debug/\\[kernel.kcore\\]/*/*/kallsyms",
		 directory);
	snprintf(disk, sizeof(disk), "%s/disk", code_directory);
	if (glob(kallsyms, 0, NULL, &found)) {
		FAIL_TEST("no %s", kallsyms);
		return false;
	}
	ok = kernel_code_open(&tally->kernel, found.gl_pathv[0], disk);
	globfree(&found);
	if (ok && symbols_find_name(tally->kernel.symbols, "__x64_sys_getppid", &function))
		tally->kernel_breakpoint = function.start;
	return ok;
}

static bool open_program(struct tally *tally)
{
	struct symbol function;

	if (elf_symbols_load(&tally->program, EXCEPTIONS_PROGRAM, ELF_VIRTUAL_ADDRESSES,
			     (struct span){ 0 }) ||
	    !symbols_find_name(tally->program, "own_breakpoint", &function)) {
		FAIL_TEST("%s has no symbols", EXCEPTIONS_PROGRAM);
		return false;
	}
	tally->user_breakpoint = function.start;
	return true;
}

static void check(const char *version, const struct tally *tally)
{
	const uint64_t *in_kernel = tally->in_kernel, *in_user = tally->in_user,
		       *steps = tally->steps;
	uint64_t whole = in_kernel[EXCEPTION_BREAKPOINT] + in_user[EXCEPTION_BREAKPOINT] +
			 in_kernel[EXCEPTION_NMI] + in_user[EXCEPTION_NMI] - tally->nested;

	printf("%s: chains from %" PRIu64 " breakpoints and %" PRIu64
	       " NMIs in the kernel (%" PRIu64 " have both) and from %" PRIu64 " and %" PRIu64
	       " in the program reach the program, %" PRIu64 " of them not its start; %" PRIu64
	       " are truncated, %" PRIu64 " wrong\n",
	       version, in_kernel[EXCEPTION_BREAKPOINT], in_kernel[EXCEPTION_NMI], tally->nested,
	       in_user[EXCEPTION_BREAKPOINT], in_user[EXCEPTION_NMI], tally->user_cut, tally->cut,
	       tally->wrong);
	printf("%s: of their steps in the kernel, %" PRIu64 " are direct calls, %" PRIu64
	       " are indirect, %" PRIu64 " leave entry code, %" PRIu64 " lead to modules\n",
	       version, steps[KERNEL_STEP_CALL] + steps[KERNEL_STEP_JUMP],
	       steps[KERNEL_STEP_INDIRECT], steps[KERNEL_STEP_INTERRUPTED],
	       steps[KERNEL_STEP_ELSEWHERE]);
	CHECK(in_kernel[EXCEPTION_BREAKPOINT] >= 30);
	CHECK(in_user[EXCEPTION_BREAKPOINT] >= 30);
	/* 5.10 prints the backtraces after the NMI instead of in it, so its NMIs are short. */
	CHECK(in_kernel[EXCEPTION_NMI] >= 2 || !strcmp(version, "5.10"));
	CHECK_EQUAL(tally->wrong, 0);
	CHECK(tally->cut <= (whole < 100 ? 2 : whole / 50));
	/* Samples before the program's unwind table was compiled have truncated chains. */
	CHECK(tally->user_cut * 2 <= whole);
}

void exception_chains_check(const char *version, const char *directory, const char *code_directory)
{
	struct tally tally = { 0 };

	if (open_program(&tally) && open_kernel(&tally, directory, code_directory)) {
		count_recording(&tally, directory);
		check(version, &tally);
	}
	kernel_code_close(&tally.kernel);
	symbols_free(tally.program);
}
