/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/system_call_chains.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/report/profile_stacks.h"

struct counts {
	uint64_t system_calls; /* samples in system calls, according to their chains */
	uint64_t reached;      /* those whose outermost kernel frame is the entry */
	uint64_t walked;       /* samples in the kernel with at least one caller */
	uint64_t whole;        /* those whose outermost kernel frame is any entry or start */
};

static bool starts_with(const char *name, const char *start)
{
	return !strncmp(name, start, strlen(start));
}

/* The ends of chains: entry code, and the starts of threads and CPUs. */
static bool is_entry(const char *name)
{
	static const char *const entries[] = {
		"entry_SYSCALL", "asm_", "ret_from_fork", "secondary_startup", "common_startup",
		"syscall_return", "error_", "x86_64_start_", "common_interrupt_return",
		/* until 5.7 */
		"apic_timer_interrupt", "reschedule_interrupt", "call_function_",
		"irq_work_interrupt", "ret_from_intr", "async_page_fault", "page_fault"
	};

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		if (starts_with(name, entries[i]))
			return true;
	return strstr(name, "restore_regs_and_return") != NULL;
}

/* Functions that run only for a system call of the workload. */
static bool is_of_system_call(const char *name)
{
	return starts_with(name, "__x64_sys_") || starts_with(name, "ksys_") ||
	       starts_with(name, "do_syscall_64") || starts_with(name, "entry_SYSCALL") ||
	       starts_with(name, "vfs_") || starts_with(name, "chacha_") ||
	       starts_with(name, "get_random_bytes_user") || starts_with(name, "shmem_file_read") ||
	       !strcmp(name, "read_zero") || !strcmp(name, "read_iter_zero") ||
	       !strcmp(name, "clear_user_rep_good");
}

static void count_stack(const struct profile_stack *stack, struct counts *counts)
{
	const char *outermost = NULL;
	bool system_call = false;
	size_t depth;

	for (depth = 0; depth < stack->depth && stack->frames[depth]->kernel; depth++) {
		outermost = stack->frames[depth]->symbol;
		if (!outermost)
			return; /* the decompressor, or an unsymbolized frame: no known function */
		system_call |= is_of_system_call(outermost);
	}
	if (!outermost)
		return;
	/*
	 * Without the kernel's tables there are no chains until it has been located in guest
	 * memory.
	 */
	counts->walked += depth > 1 ? stack->samples : 0;
	counts->whole += depth > 1 && is_entry(outermost) ? stack->samples : 0;
	if (!system_call)
		return;
	counts->system_calls += stack->samples;
	if (is_entry(outermost))
		counts->reached += stack->samples;
}

void system_call_chains_check(const char *version, const char *directory)
{
	char input[256], cache[256];
	struct profile_options options = {
		.input = input, .sources.buildid_dir = cache, .event = "0", .vcpu = -1
	};
	struct counts counts = { 0 };
	struct profile *profile;

	snprintf(input, sizeof(input), "%s/perf.data", directory);
	snprintf(cache, sizeof(cache), "%s/.debug", directory);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		count_stack(profile_stack(profile, i), &counts);
	profile_free(profile);
	printf("%s: %llu of %llu samples in system calls reach their entry, %llu of %llu in the kernel any entry\n",
	       version, (unsigned long long)counts.reached, (unsigned long long)counts.system_calls,
	       (unsigned long long)counts.whole, (unsigned long long)counts.walked);
	CHECK(counts.system_calls > 100);
	CHECK(counts.reached * 100 >= counts.system_calls * 95);
	/*
	 * Some chains end in a module that was loaded a moment ago and has no table yet; in the rig
	 * that takes some seconds.
	 */
	CHECK(counts.whole * 100 >= counts.walked * 90);
}
