/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and cgroups of samples, as perf and kvmscope read them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/record/collector_output.h"
#include "vmm/report/profile_stacks.h"

#define SCOPE "/system.slice/docker-0123.scope"

struct fixture {
	struct task_guest guest;
	struct guest_kernel kernel;
	char home[64], path[128];
};

/* A kernel whose cgroups 1 and 17 are called "/" and SCOPE. */
static void make_kernel(struct fixture *fixture)
{
	struct kernel_memory memory = { .view = &fixture->guest.guest.view,
					.paging = &fixture->guest.kernel };

	task_guest_make(&fixture->guest);
	task_guest_put_cgroup(&fixture->guest, 0, 0, 1, "");
	task_guest_put_cgroup(&fixture->guest, 1, 0, 16, "system.slice");
	task_guest_put_cgroup(&fixture->guest, 2, 1, 17, "docker-0123.scope");
	REQUIRE_EQUAL(guest_cgroups_create(&fixture->kernel.cgroups), 0);
	guest_cgroups_enter(fixture->kernel.cgroups, &(struct guest_cgroup){ 1, DIRECT + NODE(0) });
	guest_cgroups_enter(fixture->kernel.cgroups,
			    &(struct guest_cgroup){ 17, DIRECT + NODE(2) });
	guest_cgroups_load(fixture->kernel.cgroups, &memory, &task_guest_layout.cgroups);
}

static void write_sample(struct fixture *fixture, struct collector_output *output, uint64_t time,
			 uint32_t pid, uint32_t tid, uint64_t started, uint64_t cgroup)
{
	struct sample sample = { .time = time,
				 .period = 1000,
				 .rip = 0x401000,
				 .cpl = 3,
				 .pid = pid,
				 .tid = tid,
				 .started = started,
				 .parent = pid == 60 ? 1 : 60,
				 .cgroup = cgroup,
				 .cgroups = guest_cgroups_generation(fixture->kernel.cgroups) };

	snprintf(sample.comm, sizeof(sample.comm), "comm-%u", tid);
	snprintf(sample.process_comm, sizeof(sample.process_comm), "comm-%u", pid);
	CHECK_EQUAL(collector_output_sample(output,
					    &(struct attributed_sample){ .sample = &sample },
					    &fixture->kernel, NULL),
		    0);
}

/*
 * Samples of: a process; a thread of its child, whose main thread has no sample; a cgroup of an
 * earlier kernel; a cgroup without any information; and the process that reuses the first one's ID.
 */
static void record(struct fixture *fixture)
{
	struct perf_data_options options = { .frequency = 1000, .vcpus = 1, .vmm_pid = 77 };
	struct sample other = { .time = 1300,
				.period = 1000,
				.cpl = 3,
				.pid = 90,
				.tid = 90,
				.comm = "other",
				.cgroup = 17,
				.cgroups = UINT32_MAX };
	struct collector_output output;

	make_kernel(fixture);
	options.path = fixture->path;
	REQUIRE_EQUAL(collector_output_open(&output, &options, NULL), 0);
	write_sample(fixture, &output, 1000, 60, 60, 5000000, 1);
	write_sample(fixture, &output, 1100, 70, 72, 6000000, 17);
	write_sample(fixture, &output, 1200, 80, 80, 7000000, 99);
	CHECK_EQUAL(collector_output_sample(&output,
					    &(struct attributed_sample){ .sample = &other },
					    &fixture->kernel, NULL),
		    0);
	write_sample(fixture, &output, 1400, 60, 60, 5000000, 17);
	write_sample(fixture, &output, 1500, 60, 60, 8000000, 17);
	CHECK_EQUAL(collector_output_close(&output), 0);
}

static void make(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	perf_home_enter(fixture->home);
	snprintf(fixture->path, sizeof(fixture->path), "%s/perf.data", fixture->home);
	record(fixture);
}

static void free_fixture(struct fixture *fixture)
{
	guest_cgroups_free(fixture->kernel.cgroups);
	task_guest_free(&fixture->guest);
	perf_home_leave(fixture->home);
}

static void check_contains(const char *text, const char *wanted)
{
	if (!strstr(text, wanted))
		FAIL_TEST("no \"%s\" in:\n%s", wanted, text);
}

static unsigned int count_of(const char *text, const char *wanted)
{
	unsigned int count = 0;

	while ((text = strstr(text, wanted))) {
		text += strlen(wanted);
		count++;
	}
	return count;
}

TEST(perf_tasks, perf_shows_the_cgroup_of_each_sample)
{
	struct fixture fixture;
	char *text;

	NEED_PERF;
	make(&fixture);
	text = perf_output(
		"perf report -i %s --stdio -F sample,cgroup -s cgroup --kallsyms /dev/null 2>&1",
		fixture.path);
	check_contains(text, " 3  " SCOPE);
	check_contains(text, " 1  /\n");
	/* Without a name; of another kernel. */
	check_contains(text, " 1  unknown");
	check_contains(text, " 1  N/A");
	free(text);
	free_fixture(&fixture);
}

/*
 * Each process is reported once, before other records about it, with its parent; threads with their
 * process.
 */
TEST(perf_tasks, perf_has_the_parent_of_each_process)
{
	struct fixture fixture;
	char *text;

	NEED_PERF;
	make(&fixture);
	text = perf_output("perf script -i %s --show-task-events --kallsyms /dev/null 2>&1",
			   fixture.path);
	CHECK_EQUAL(count_of(text, "PERF_RECORD_FORK"), 5);
	CHECK_EQUAL(count_of(text, "PERF_RECORD_FORK(60:60):(1:1)"), 2);
	check_contains(text, "PERF_RECORD_FORK(70:70):(60:60)");
	check_contains(text, "PERF_RECORD_FORK(70:72):(70:70)");
	check_contains(text, "PERF_RECORD_COMM: comm-70:70/70");
	free(text);
	text = perf_output("perf report -i %s --stdio -s pid,comm --kallsyms /dev/null 2>&1",
			   fixture.path);
	check_contains(text, "72:comm-72");
	check_contains(text, "60:comm-60");
	free(text);
	free_fixture(&fixture);
}

/* Reports that PROCESS is in PATH; ID is 0 for cgroup version 1. */
static void report_cgroup(struct collector_output *output, uint64_t time, uint32_t process,
			  uint64_t id, const char *path)
{
	union {
		struct sideband_cgroup cgroup;
		uint8_t bytes[256];
	} record = { .cgroup = { .head = { .type = SIDEBAND_CGROUP,
					   .time = time,
					   .pid = process,
					   .tid = process },
				 .id = id } };

	record.cgroup.head.size = sideband_size(sizeof(record.cgroup), path);
	REQUIRE(record.cgroup.head.size <= sizeof(record));
	memcpy(record.bytes + sizeof(record.cgroup), path, strlen(path) + 1);
	REQUIRE(sideband_check(span_of(record.bytes, record.cgroup.head.size)));
	CHECK_EQUAL(file_state_sideband(output->state, &record.cgroup.head), 0);
}

static void report_fork(struct collector_output *output, uint64_t time, uint32_t process,
			uint32_t parent)
{
	const struct sideband_fork fork = {
		.head = { .size = sizeof(fork),
			  .type = SIDEBAND_FORK,
			  .time = time,
			  .pid = process,
			  .tid = process },
		.parent_pid = parent,
		.parent_tid = parent,
	};

	CHECK_EQUAL(file_state_sideband(output->state, &fork.head), 0);
}

static const char *cgroup_of(const struct profile *profile, const char *comm)
{
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		if (!strcmp(profile_stack(profile, i)->comm, comm))
			return profile_stack(profile, i)->cgroup;
	return NULL;
}

TEST(perf_tasks, profile_has_the_cgroup_of_each_stack)
{
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	struct fixture fixture;

	make(&fixture);
	options.input = fixture.path;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_STRING(cgroup_of(profile, "comm-60"), "/");
	CHECK_STRING(cgroup_of(profile, "comm-72"), SCOPE);
	CHECK_STRING(cgroup_of(profile, "comm-80"), "");
	CHECK_STRING(cgroup_of(profile, "other"), "");
	CHECK_EQUAL(profile_stack_count(profile), 5);
	profile_free(profile);
	free_fixture(&fixture);
}

/*
 * A sampled cgroup takes precedence; otherwise the guest's report is used, and children inherit it.
 */
TEST(perf_tasks, guest_reports_cgroups_that_were_not_sampled)
{
	struct profile_options options = { .vcpu = -1 };
	struct collector_output output;
	struct profile *profile;
	struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	perf_home_enter(fixture.home);
	snprintf(fixture.path, sizeof(fixture.path), "%s/perf.data", fixture.home);
	make_kernel(&fixture);
	REQUIRE_EQUAL(collector_output_open(&output,
					    &(struct perf_data_options){ .path = fixture.path,
									 .frequency = 1000,
									 .vcpus = 1,
									 .vmm_pid = 77 },
					    NULL),
		      0);
	report_cgroup(&output, 900, 60, 0, "/docker/old");
	report_cgroup(&output, 900, 70, 55, "/told.slice");
	report_fork(&output, 950, 80, 70);
	write_sample(&fixture, &output, 1000, 60, 60, 5000000, 1);
	write_sample(&fixture, &output, 1100, 70, 70, 6000000, 17);
	write_sample(&fixture, &output, 1200, 80, 80, 7000000, 0);
	write_sample(&fixture, &output, 1300, 90, 90, 7000000, 0);
	CHECK_EQUAL(collector_output_close(&output), 0);
	options.input = fixture.path;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK_STRING(cgroup_of(profile, "comm-60"), "/docker/old");
	CHECK_STRING(cgroup_of(profile, "comm-70"), SCOPE);
	CHECK_STRING(cgroup_of(profile, "comm-80"), "/told.slice");
	CHECK_STRING(cgroup_of(profile, "comm-90"), "");
	profile_free(profile);
	free_fixture(&fixture);
}
