/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux 5.4 of Ubuntu, the oldest supported kernel. It has no BTF and no ORC tables, and its
 * functions have frame pointers. Its symbols equal its /proc/kallsyms, chains reach the entry, and
 * the agent works. The task of a sample is found with the reference tasks of the agent: processes
 * have correct names, and correct images after the agent had the time to report them: the guest
 * sleeps before its end.
 */
#include <stdio.h>
#include <string.h>

#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"
#include "tests/rig/system_call_chains.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/elf_symbols.h"

#define DIRECTORY "build/rig/old-kernel"
#define INITRD    "build/initrd/old-kernel.cpio"
#define ENOUGH    100ul
/*
 * Functions in the lines of /proc/kallsyms that are in the image; there are no modules and no
 * KASLR.
 */
#define FUNCTION "^ffffffff8[0-2][0-9a-f]*.[tTwW].[^.]"

static bool make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 300,
		     "tests/rig/initrd --kernel 5.4 --output " INITRD " build/rig/workload "
		     "build/rig/remap/{remap,alpha,beta,gamma,delta,one,two,three,brief}");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made;
}

/* Symbols read from memory equal those that the guest has SAID. */
static void check_symbols(const char *said)
{
	struct rig_result result;

	rig_run_here(&result, 60,
		     "export LC_ALL=C; grep -h '" FUNCTION "' " DIRECTORY
		     "/.debug/*kcore*/*/*/kallsyms > " DIRECTORY "/functions; "
		     "[ $(wc -l < " DIRECTORY "/functions) -gt 30000 ] && sort -u " DIRECTORY
		     "/functions | md5sum | cut -c 1-32 | tr -d '\\n'");
	if (strlen(result.output) != 32 || !strstr(said, result.output))
		FAIL_TEST(
			"the functions read from guest memory, %s, are not those of the guest: %s",
			result.output, said);
	rig_result_free(&result);
}

/*
 * Of all samples since the first one of the workload, after the guest's line. During a context
 * switch some have no task.
 */
static void check_tasks(void)
{
	struct rig_result result;
	unsigned long all, unknown;

	rig_run_here(
		&result, 60,
		"perf script -G -i " DIRECTORY "/perf.data -F comm 2> /dev/null | "
		"awk '$1 == \"workload\" { begun = 1 } begun { all++; unknown += $1 == \"vcpu\" } "
		"END { print all + 0, unknown + 0 }'");
	REQUIRE_EQUAL(sscanf(result.output, "%lu %lu", &all, &unknown), 2);
	rig_result_free(&result);
	printf("5.4: %lu of %lu samples have no task\n", unknown, all);
	CHECK(all >= ENOUGH);
	CHECK(unknown * 20 <= all);
}

/*
 * The code of each of four programs is identified by its address (tests/rig/guest/remap.c), so the
 * sample's process and image must be that program's.
 */
static void check_process_names(void)
{
	struct rig_result result;
	struct remap_truth truth = remap_truth_read(DIRECTORY "/perf.data", DIRECTORY);
	unsigned long right, wrong;

	printf("5.4: %lu samples in their image, %lu in another, %lu unknown\n", truth.right,
	       truth.wrong, truth.unknown);
	CHECK(truth.right > 0);
	CHECK_EQUAL(truth.wrong, 0);
	rig_run_here(
		&result, 60,
		"perf script -G -i " DIRECTORY "/perf.data -F comm,ip 2> /dev/null | awk 'BEGIN { "
		"name[5] = \"one\"; name[6] = \"two\"; name[7] = \"three\"; name[8] = \"brief\"; "
		"for (i in name) known[name[i]] } "
		"$2 ~ /^401[5-8]0[0-5]$/ && $1 in known { if (name[substr($2, 4, 1)] == $1) right++; else wrong++ } "
		"END { print right + 0, wrong + 0 }'");
	REQUIRE_EQUAL(sscanf(result.output, "%lu %lu", &right, &wrong), 2);
	rig_result_free(&result);
	printf("5.4: %lu samples in programs have their process's name, %lu another's\n", right,
	       wrong);
	CHECK(right > 0);
	CHECK_EQUAL(wrong, 0);
}

/*
 * Calls in tests/rig/guest/workload.c. It has frame pointers; code linked to it, such as syscall()
 * and the caller of main(), has none.
 */
static const struct {
	const char *function, *caller;
} calls[] = {
	{ "syscall", "task_getrandom" },  { "syscall", "task_read" },
	{ "syscall", "task_pread64" },    { "task_getrandom", "run_tasks" },
	{ "task_read", "run_tasks" },     { "task_pread64", "run_tasks" },
	{ "run_tasks", "start_process" }, { "run_tasks", "main" },
	{ "start_process", "main" },      { "main", "__libc_start_call_main" },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

struct callers {
	struct symbols *program;
	uint64_t right, wrong, whole; /* pairs; samples with callers up to main() */
};

/* All samples of a symbolized frame share the address of the first: it may be a function's first.
 */
static const char *function_of(const struct callers *callers, const struct profile_frame *frame,
			       bool called)
{
	struct symbol symbol;

	if (frame->symbol)
		return frame->symbol;
	return symbols_find(callers->program, frame->address - called, &symbol) ? symbol.name : "";
}

static void count_caller(struct callers *callers, const struct profile_stack *stack,
			 const char *function, const char *caller)
{
	bool known = false, right = false;

	for (size_t i = 0; i < CALLS; i++) {
		if (strcmp(function, calls[i].function) != 0)
			continue;
		known = true;
		right |= !strcmp(caller, calls[i].caller);
	}
	callers->right += right ? stack->samples : 0;
	callers->wrong += known && !right ? stack->samples : 0;
	callers->whole += right && !strcmp(function, "main") ? stack->samples : 0;
	if (known && !right)
		printf("5.4: wrong caller: %s, called by %s\n", function, caller);
}

static void count_callers(struct callers *callers, const struct profile_stack *stack)
{
	const char *function = NULL;

	for (size_t i = 0; i < stack->depth; i++) {
		const char *caller;

		if (stack->frames[i]->kernel)
			continue;
		caller = function_of(callers, stack->frames[i], function != NULL);
		if (function)
			count_caller(callers, stack, function, caller);
		function = caller;
	}
}

/* A reported caller has to be the actual one, without gaps. */
static void check_callers(void)
{
	const struct profile_options options = { .input = DIRECTORY "/perf.data",
						 .event = "0",
						 .vcpu = -1 };
	struct callers callers = { 0 };
	struct profile *profile;

	REQUIRE_EQUAL(elf_symbols_load(&callers.program, "build/rig/workload",
				       ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		      0);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		if (!strcmp(profile_stack(profile, i)->comm, "workload"))
			count_callers(&callers, profile_stack(profile, i));
	profile_free(profile);
	symbols_free(callers.program);
	printf("5.4: %llu callers in the workload are right, %llu wrong; %llu chains go beyond main()\n",
	       (unsigned long long)callers.right, (unsigned long long)callers.wrong,
	       (unsigned long long)callers.whole);
	CHECK(callers.whole >= ENOUGH);
	CHECK_EQUAL(callers.wrong, 0);
}

TEST(old_kernel, ubuntu_5_4_has_symbols_and_call_chains)
{
	struct rig_result result;
	const char *kernel;

	RIG_REQUIRED();
	kernel = rig_kernel("5.4");
	if (!kernel || !make_initrd())
		return;
	rig_run_on(
		&result, RIG_TRUSTED_TSC, 280,
		"d=$PWD/" DIRECTORY "; rm -rf $d; mkdir -p $d; "
		"HOME=$d tests/rig/begin-when-known --said 'found by those of its agent' build/kvmscope run --sampler kick --verbose "
		"--pmu off --agent --timeout 250 --mem 256M --cpus 2 "
		"--stack-time 100ms -F 499 -o $d/perf.data --kernel %s --initrd " INITRD
		" --append 'console=ttyS0 quiet panic=-1 pti=off kvmscope.wait "
		"kvmscope.run=grep+" FUNCTION
		"+/proc/kallsyms|sort+-u|md5sum;workload+shares+4;remap+6'",
		kernel);
	printf("%s\n", result.errors);
	if (result.status || !strstr(result.output, "remap: mapped")) {
		FAIL_TEST("%s%s", result.output, result.errors);
		rig_result_free(&result);
		return;
	}
	CHECK(!strstr(result.errors, "agent did not answer"));
	check_symbols(result.output);
	rig_result_free(&result);
	system_call_chains_check("5.4", DIRECTORY);
	check_tasks();
	check_process_names();
	check_callers();
}
