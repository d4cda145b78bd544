/* SPDX-License-Identifier: Apache-2.0 */
/* The demo as `make demo` runs it, and what it leaves, read by Debian's perf. */
#include "tests/rig/rig.h"

static void check_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		FAIL_TEST("no '%s' in:\n%.4000s", part, text);
}

/* Samples of the workload's system calls, with their chains to the entry, as perf names them. */
static void check_perf_names_functions(const char *data)
{
	struct rig_result perf;

	rig_run_here(&perf, 60, "perf script -i build/demo/%s", data);
	CHECK_EQUAL(perf.status, 0);
	check_contains(perf.output, "chacha_block_generic+0x");
	check_contains(perf.output, "do_syscall_64+0x");
	check_contains(perf.output, "entry_SYSCALL_64_after_hwframe+0x");
	check_contains(perf.output, "([kernel.kallsyms])");
	check_contains(perf.output, "main+0x");
	check_contains(perf.output, "(/bin/workload)");
	rig_result_free(&perf);
}

static void check_page(const char *name)
{
	struct rig_result page;

	rig_run_here(&page, 10, "cat build/demo/%s", name);
	check_contains(page.output, "<html");
	check_contains(page.output, "__x64_sys_getrandom");
	check_contains(page.output, "\"hash_block\"");
	rig_result_free(&page);
}

TEST(demo, shows_what_debians_kernel_was_busy_with)
{
	struct rig_result demo;

	RIG_REQUIRED();
	rig_run_here(&demo, 360, "tests/e2e/demo");
	CHECK_EQUAL(demo.status, 0);
	check_contains(demo.output, "workload: truth process=web");
	check_contains(demo.output, "Overhead");
	check_contains(demo.output, "[kernel.kallsyms]");
	if (demo.status)
		FAIL_TEST("the demo said: %s", demo.errors);
	rig_result_free(&demo);
	check_perf_names_functions("perf.data");
	check_perf_names_functions("agent.data");
	check_page("flame.html");
	check_page("flame-agent.html");
}

TEST(demo, says_what_is_missing_and_how_to_get_it)
{
	struct rig_result demo;

	rig_run_here(
		&demo, 20,
		"here=$PWD; cd \"$(mktemp -d)\" && \"$here/build/kvmscope\" demo; status=$?; rmdir \"$PWD\"; exit $status");
	CHECK_EQUAL(demo.status, 1);
	check_contains(demo.errors, "run make demo");
	rig_result_free(&demo);
}
