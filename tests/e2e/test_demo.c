/* SPDX-License-Identifier: Apache-2.0 */
/* The demo as `make demo` runs it; its output is read by Debian's perf. */
#include <stdio.h>

#include "tests/e2e/flame_page.h"
#include "tests/rig/rig.h"

static void check_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		FAIL_TEST("no '%s' in:\n%.4000s", part, text);
}

/* Samples of the workload's system calls, whose chains reach the entry in perf. */
static void check_perf_names_functions(const char *data)
{
	struct rig_result perf;

	rig_run_here(&perf, 300, "perf script -i build/demo/%s", data);
	CHECK_EQUAL(perf.status, 0);
	check_contains(perf.output, "chacha_block_generic+0x");
	check_contains(perf.output, "do_syscall_64+0x");
	check_contains(perf.output, "entry_SYSCALL_64_after_hwframe+0x");
	check_contains(perf.output, "([kernel.kallsyms])");
	check_contains(perf.output, "main+0x");
	check_contains(perf.output, "(/bin/workload)");
	rig_result_free(&perf);
}

/*
 * Each process of the workload (tests/rig/guest/workload.c) has samples in one of its own functions
 * and in the kernel.
 */
static const struct process {
	const char *name, *function, *system_call;
} processes[] = {
	{ "web", "hash_block", "ksys_read" },
	{ "store", "task_getrandom", "__x64_sys_getrandom" },
	{ "logger", "hash_block", "ksys_read" },
};

static void check_process(const char *name, const struct flame_page *page,
			  const struct process *process)
{
	unsigned long user, kernel, all = flame_page_samples(page, process->name);

	user = flame_page_samples_in(page, process->name, process->function, FLAME_PAGE_USER);
	kernel =
		flame_page_samples_in(page, process->name, process->system_call, FLAME_PAGE_KERNEL);
	printf("%s: %lu samples of %s, %lu of them in %s, %lu in %s\n", name, all, process->name,
	       user, process->function, kernel, process->system_call);
	CHECK(user > 0);
	CHECK(kernel > 0);
}

/* User and kernel functions, by process, in the same graph. */
static void check_processes(const char *name, const struct flame_page *page)
{
	unsigned long all = flame_page_samples(page, NULL), named = 0;

	for (size_t i = 0; i < sizeof(processes) / sizeof(processes[0]); i++) {
		check_process(name, page, &processes[i]);
		named += flame_page_samples(page, processes[i].name);
	}
	printf("%s: %lu of %lu samples are of these processes\n", name, named, all);
	CHECK(2 * named > all);
}

static void check_page(const char *name)
{
	struct flame_page *page;
	struct rig_result text;

	rig_run_here(&text, 100, "cat build/demo/%s", name);
	check_contains(text.output, "<html");
	page = flame_page_read(text.output);
	rig_result_free(&text);
	REQUIRE(page != NULL);
	check_processes(name, page);
	/*
	 * It runs once, for a few instructions; the stubs that sorting uses follow it in the file.
	 */
	CHECK_EQUAL(flame_page_samples_in(page, NULL, "_init", FLAME_PAGE_USER), 0);
	flame_page_free(page);
}

TEST(demo, shows_where_the_debian_guest_spent_its_time)
{
	struct rig_result demo;

	RIG_REQUIRED();
	rig_run_here(&demo, 360, "tests/e2e/demo");
	CHECK_EQUAL(demo.status, 0);
	check_contains(demo.output, "workload: truth process=web");
	check_contains(demo.output, "Overhead");
	check_contains(demo.output, "[kernel.kallsyms]");
	if (demo.status)
		FAIL_TEST("the demo failed: %s", demo.errors);
	rig_result_free(&demo);
	check_perf_names_functions("perf.data");
	check_perf_names_functions("agent.data");
	check_page("flame.html");
	check_page("flame-agent.html");
}

TEST(demo, reports_missing_packages_and_how_to_install_them)
{
	struct rig_result demo;

	rig_run_here(
		&demo, 100,
		"here=$PWD; cd \"$(mktemp -d)\" && \"$here/build/kvmscope\" demo; status=$?; rmdir \"$PWD\"; exit $status");
	CHECK_EQUAL(demo.status, 1);
	check_contains(demo.errors, "run make demo");
	rig_result_free(&demo);
}
