/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/collector_output.h"
#include "vmm/record/file_state_parts.h"

#define OUTPUT  "/tmp/kvmscope-test-task-names.data"
#define VMM_PID 4000

TEST(file_state_tasks, are_due_once_and_when_they_change)
{
	struct file_tasks *tasks = file_tasks_new();

	REQUIRE(tasks);
	CHECK(file_tasks_name_due(tasks, 7, 8, 100, "a"));
	CHECK(!file_tasks_name_due(tasks, 7, 8, 100, "a"));
	CHECK(!file_tasks_name_due(tasks, 7, 8, 200, "a"));
	CHECK(file_tasks_name_due(tasks, 7, 8, 300, "b"));
	CHECK(file_tasks_name_due(tasks, 7, 9, 300, "b"));
	CHECK(file_tasks_name_due(tasks, 6, 8, 300, "b")); /* the id has come to another process */
	CHECK(file_tasks_name_due(tasks, 0, 0, 0, ""));
	CHECK(!file_tasks_name_due(tasks, 0, 0, 0, ""));
	file_tasks_free(tasks);
}

/* Another vCPU's samples of the task may come later although they were earlier. */
TEST(file_state_tasks, late_names_are_due_for_their_time)
{
	struct file_tasks *tasks = file_tasks_new();

	REQUIRE(tasks);
	CHECK(file_tasks_name_due(tasks, 7, 8, 500, "new"));
	CHECK(file_tasks_name_due(tasks, 7, 8, 100, "old"));
	CHECK(file_tasks_name_due(tasks, 7, 8, 400, "new")); /* a reader would take "old" */
	CHECK(!file_tasks_name_due(tasks, 7, 8, 600, "new"));
	file_tasks_free(tasks);
}

TEST(file_state_tasks, of_threads_in_one_place_are_never_mixed_up)
{
	struct file_tasks *tasks = file_tasks_new();

	REQUIRE(tasks);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(file_tasks_name_due(tasks, 1, 1, i + 1, "one"));
		CHECK(file_tasks_name_due(tasks, 1, 1 + 65536, i + 1, "other"));
	}
	file_tasks_free(tasks);
}

/* A reader's view of the file: each sample with the latest name of its thread. */
struct seen {
	struct {
		uint32_t pid, tid;
		char comm[32];
	} samples[16];
	size_t count, names;
	char name[32];
	uint32_t name_tid;
};

static int take_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct seen *seen = context;

	seen->names++;
	seen->name_tid = tid;
	snprintf(seen->name, sizeof(seen->name), "%s", comm);
	return 0;
}

static int take_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	if (seen->count == 16)
		return 0;
	seen->samples[seen->count].pid = sample->pid;
	seen->samples[seen->count].tid = sample->tid;
	if (seen->name_tid == sample->tid)
		snprintf(seen->samples[seen->count].comm, sizeof(seen->samples[0].comm), "%s",
			 seen->name);
	seen->count++;
	return 0;
}

/* Five samples: of a task, of it with another name, of an idle CPU, of another one, of none. */
static void write_file(enum perspective perspective)
{
	static const struct {
		uint32_t pid, tid;
		const char *comm;
	} tasks[] = { { 10, 11, "sh" },
		      { 10, 11, "a-name-of-15-by" },
		      { 0, 0, "swapper/0" },
		      { 0, 0, "swapper/1" },
		      { SAMPLE_TASK_UNKNOWN, SAMPLE_TASK_UNKNOWN, "" } };
	struct perf_data_options options = { .path = OUTPUT,
					     .perspective = perspective,
					     .frequency = 100,
					     .vcpus = 1,
					     .vmm_pid = VMM_PID };
	struct collector_output output;

	REQUIRE_EQUAL(collector_output_open(&output, &options, NULL), 0);
	for (unsigned int i = 0; i < 5; i++) {
		struct sample sample = {
			.time = 1000 + i, .host_tid = 4001, .pid = tasks[i].pid, .tid = tasks[i].tid
		};

		snprintf(sample.comm, sizeof(sample.comm), "%s", tasks[i].comm);
		CHECK_EQUAL(collector_output_sample(
				    &output, &(struct attributed_sample){ .sample = &sample }, NULL,
				    NULL),
			    0);
	}
	CHECK_EQUAL(collector_output_close(&output), 0);
}

static void read_file(struct seen *seen)
{
	struct perf_data_events events = { .sample = take_sample,
					   .comm = take_comm,
					   .context = seen };
	struct perf_data_reader *reader;

	memset(seen, 0, sizeof(*seen));
	REQUIRE_EQUAL(perf_data_reader_open(&reader, OUTPUT), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	unlink(OUTPUT);
}

TEST(file_state_tasks, of_the_guest_are_in_its_perspective)
{
	struct seen seen;

	write_file(PERSPECTIVE_GUEST);
	read_file(&seen);
	REQUIRE_EQUAL(seen.count, 5);
	CHECK_EQUAL(seen.names, 4);
	CHECK_EQUAL(seen.samples[0].pid, 10);
	CHECK_EQUAL(seen.samples[0].tid, 11);
	CHECK_STRING(seen.samples[0].comm, "sh");
	CHECK_STRING(seen.samples[1].comm, "a-name-of-15-by");
	for (int i = 2; i < 4; i++) {
		CHECK_EQUAL(seen.samples[i].pid, 0);
		CHECK_STRING(seen.samples[i].comm, "swapper");
	}
	CHECK_EQUAL(seen.samples[4].pid, SAMPLE_TASK_LIMIT);
	CHECK_EQUAL(seen.samples[4].tid, SAMPLE_TASK_LIMIT + 1);
	CHECK_STRING(seen.samples[4].comm, "vcpu 0");
}

TEST(file_state_tasks, of_the_guest_are_not_in_the_host_s)
{
	struct seen seen;

	write_file(PERSPECTIVE_HOST);
	read_file(&seen);
	REQUIRE_EQUAL(seen.count, 5);
	CHECK_EQUAL(seen.names, 1);
	for (int i = 0; i < 5; i++) {
		CHECK_EQUAL(seen.samples[i].pid, VMM_PID);
		CHECK_EQUAL(seen.samples[i].tid, 4001);
		CHECK_STRING(seen.samples[i].comm, "vcpu 0");
	}
}
