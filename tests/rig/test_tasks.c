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

struct reported_lifetimes {
	uint32_t parents[1 << 16]; /* by process */
	unsigned int forks, threads;
	uint32_t tasks; /* their parent: that of alpha */
};

static int add_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		    uint32_t parent_tid, uint64_t time, bool before)
{
	struct reported_lifetimes *lifetimes = context;

	lifetimes->forks++;
	lifetimes->threads += pid != tid && parent_pid == pid;
	if (pid == tid && pid < 1 << 16)
		lifetimes->parents[pid] = parent_pid;
	return 0;
}

static int add_name(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct reported_lifetimes *lifetimes = context;
	char name[32];

	snprintf(name, sizeof(name), "alpha-%u", tid);
	if (!strcmp(comm, name))
		lifetimes->tasks = lifetimes->parents[pid];
	snprintf(name, sizeof(name), "program-%u", tid);
	if (!strcmp(comm, name) && lifetimes->tasks)
		CHECK_EQUAL(lifetimes->parents[pid], lifetimes->tasks);
	return 0;
}

/* All are children of one process; the two threads are reported as threads. */
static void check_lifetimes(const char *what, const char *directory)
{
	struct reported_lifetimes *lifetimes = calloc(1, sizeof(*lifetimes));
	struct perf_data_events events = { .fork = add_fork,
					   .comm = add_name,
					   .context = lifetimes };
	char path[160];

	REQUIRE(lifetimes);
	snprintf(path, sizeof(path), "%s/perf.data", directory);
	recording_replay(path, &events);
	printf("%s: %u processes and threads are reported, %u of them threads\n", what,
	       lifetimes->forks, lifetimes->threads);
	CHECK(lifetimes->forks > 8);
	CHECK(lifetimes->threads >= 2);
	CHECK(lifetimes->tasks > 1);
	free(lifetimes);
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
	       what, truth.right, truth.wrong, truth.unknown);
	CHECK(truth.right > 0);
	CHECK_EQUAL(truth.wrong, 0);
	CHECK_EQUAL(truth.misnamed, 0);
	CHECK(truth.right >= 19 * truth.unknown);
}

static void attributes_tasks(const char *version, const char *pti)
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
	check_lifetimes(what, directory);
	if (!strcmp(pti, "on") && !rig_debug_registers_unavailable_reason())
		watched_counters_check(what, directory, 0);
	if (!strcmp(pti, "off"))
		check_remapped(what, directory);
}

TEST(tasks, samples_of_debian_5_10_have_tasks)
{
	attributes_tasks("5.10", "off");
}

TEST(tasks, samples_of_debian_5_10_have_tasks_with_isolated_page_tables)
{
	attributes_tasks("5.10", "on");
}

TEST(tasks, samples_of_debian_6_1_have_tasks)
{
	attributes_tasks("6.1", "off");
}

TEST(tasks, samples_of_debian_6_1_have_tasks_with_isolated_page_tables)
{
	attributes_tasks("6.1", "on");
}

TEST(tasks, samples_of_debian_6_12_have_tasks)
{
	attributes_tasks("6.12", "off");
}

TEST(tasks, samples_of_debian_6_12_have_tasks_with_isolated_page_tables)
{
	attributes_tasks("6.12", "on");
}

TEST(tasks, samples_of_debian_7_2_have_tasks)
{
	attributes_tasks("7.2", "off");
}

TEST(tasks, samples_of_debian_7_2_have_tasks_with_isolated_page_tables)
{
	attributes_tasks("7.2", "on");
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
