/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's tasks, their control groups, lifetimes and images in Debian's kernels, with nothing
 * in the guest.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/debian_recording.h"
#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"
#include "tests/rig/tasks_truth.h"
#include "tests/rig/watched_counters.h"
#include "vmm/perf_data/perf_data_reader.h"

struct told_lives {
	uint32_t parents[1 << 16]; /* by process */
	unsigned int forks, threads;
	uint32_t tasks; /* their parent: that of alpha */
};

static int see_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		    uint32_t parent_tid, uint64_t time, bool before)
{
	struct told_lives *lives = context;

	lives->forks++;
	lives->threads += pid != tid && parent_pid == pid;
	if (pid == tid && pid < 1 << 16)
		lives->parents[pid] = parent_pid;
	return 0;
}

static int see_name(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct told_lives *lives = context;
	char name[32];

	snprintf(name, sizeof(name), "alpha-%u", tid);
	if (!strcmp(comm, name))
		lives->tasks = lives->parents[pid];
	snprintf(name, sizeof(name), "program-%u", tid);
	if (!strcmp(comm, name) && lives->tasks)
		CHECK_EQUAL(lives->parents[pid], lives->tasks);
	return 0;
}

/* All are children of one process; the two threads are reported as threads. */
static void check_lives(const char *what, const char *directory)
{
	struct told_lives *lives = calloc(1, sizeof(*lives));
	struct perf_data_events events = { .fork = see_fork, .comm = see_name, .context = lives };
	char path[160];

	REQUIRE(lives);
	snprintf(path, sizeof(path), "%s/perf.data", directory);
	recording_replay(path, &events);
	printf("%s: %u processes and threads are reported, %u of them threads\n", what, lives->forks,
	       lives->threads);
	CHECK(lives->forks > 8);
	CHECK(lives->threads >= 2);
	CHECK(lives->tasks > 1);
	free(lives);
}

/*
 * With nothing in the guest: mappings change continuously, and no sample is attributed to a wrong
 * one.
 */
static void check_remapped(const char *what, const char *directory)
{
	struct remap_truth truth;
	char file[160];

	snprintf(file, sizeof(file), "%s/perf.data", directory);
	truth = remap_truth_read(file, directory);
	printf("%s, remapped: %lu samples in the right image, %lu in a wrong one, %lu unknown\n",
	       what, truth.right, truth.wrong, truth.untold);
	CHECK(truth.right > 0);
	CHECK_EQUAL(truth.wrong, 0);
	CHECK_EQUAL(truth.misnamed, 0);
	CHECK(truth.right >= 19 * truth.untold);
}

static void names_tasks(const char *version, const char *pti)
{
	const char *directory;
	char what[64];

	RIG_REQUIRED();
	directory = debian_recording(version, pti);
	if (!directory)
		return;
	snprintf(what, sizeof(what), "%s, pti=%s", version, pti);
	tasks_truth_check(what, directory);
	tasks_truth_check_cgroups(what, directory);
	check_lives(what, directory);
	if (!strcmp(pti, "on") && !rig_debug_registers_unavailable_reason())
		watched_counters_check(what, directory, 0);
	if (!strcmp(pti, "off"))
		check_remapped(what, directory);
}

TEST(tasks, samples_of_debian_5_10_have_tasks)
{
	names_tasks("5.10", "off");
}

TEST(tasks, samples_of_debian_5_10_have_tasks_with_isolated_page_tables)
{
	names_tasks("5.10", "on");
}

TEST(tasks, samples_of_debian_6_1_have_tasks)
{
	names_tasks("6.1", "off");
}

TEST(tasks, samples_of_debian_6_1_have_tasks_with_isolated_page_tables)
{
	names_tasks("6.1", "on");
}

TEST(tasks, samples_of_debian_6_12_have_tasks)
{
	names_tasks("6.12", "off");
}

TEST(tasks, samples_of_debian_6_12_have_tasks_with_isolated_page_tables)
{
	names_tasks("6.12", "on");
}

TEST(tasks, samples_of_debian_7_2_have_tasks)
{
	names_tasks("7.2", "off");
}

TEST(tasks, samples_of_debian_7_2_have_tasks_with_isolated_page_tables)
{
	names_tasks("7.2", "on");
}

#define LATE "build/rig/late-look"

#define LATE_GUEST                                                                                 \
	"console=ttyS0 quiet panic=-1 " QUICK_BOOT " kvmscope.run=echo+tasks:+begin;sleep+4;tasks+4"

static void check_late(const char *what, const char *directory)
{
	struct rig_result report;

	tasks_truth_check_cgroups(what, directory);
	rig_run_here(
		&report, 60,
		"build/kvmscope report --json -i %s/perf.data | grep -o '\"lookup_incomplete\": [0-9]*'",
		directory);
	printf("%s", report.output);
	rig_result_free(&report);
}

/*
 * Each scan ends after the first address: the collector looks up the others. So does the flight
 * recorder, whose file is written when the guest panics.
 */
TEST(tasks, collector_finds_cgroups_if_the_stop_had_no_time)
{
	const char *kernel, *initrd;
	struct rig_result result;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = kernel ? debian_recording_initrd("6.1") : NULL;
	if (!initrd)
		return;
	rig_run(&result, 300,
		"rm -rf " LATE "; late() { d=$PWD/" LATE
		"/$1 end=$2; shift 2; mkdir -p $d; HOME=$d build/kvmscope "
		"run --pmu off --timeout 120 --mem 256M -F 999 --stack-time 1us -o $d/perf.data --kernel %s "
		"--initrd %s --append \"" LATE_GUEST " $end\" \"$@\" < /dev/null; }; "
		"late run '' --from-line 'tasks: begin' && late flight kvmscope.end=panic --flight 60s",
		kernel, initrd);
	if (result.status)
		FAIL_TEST("%s\n%s", result.output, result.errors);
	check_late("behind the stop", LATE "/run");
	check_late("behind the stop, of a flight recorder", LATE "/flight");
	rig_result_free(&result);
}
