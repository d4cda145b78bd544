/* SPDX-License-Identifier: Apache-2.0 */
/* Where the wall time of the vCPUs went, as a recording has it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_blocks.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/session/recorded_times.h"

#define SECOND 1000000000ull

static void set(struct vcpu_times_rows *rows, unsigned int vcpu, enum vcpu_state state,
		uint64_t seconds)
{
	struct vcpu_times *row = vcpu_times_row(rows, vcpu);

	REQUIRE(row);
	row->ns[state] = seconds * SECOND;
}

/* vCPU 0 ran the guest for 6 s, a third of them in user space, and was halted for 2 s; vCPU 3
 * waited for 2 s. */
static void make_times(struct perf_data_times *times)
{
	struct vcpu_times_rows rows = { 0 };

	set(&rows, 0, VCPU_GUEST, 6);
	set(&rows, 0, VCPU_HALTED, 2);
	set(&rows, 3, VCPU_WAITING, 2);
	rows.rows[0].user_samples = 100;
	rows.rows[0].kernel_samples = 200;
	recorded_times(times, &rows, VCPU_TIMES_ALL);
	vcpu_times_free(&rows);
}

TEST(perf_data_times, round_trip)
{
	struct perf_data_times times, read = { 0 };
	struct bytes content = { 0 };
	uint32_t *words;

	make_times(&times);
	CHECK_EQUAL(times.vcpus, 2);
	perf_data_times_add(&content, &times);
	REQUIRE(!content.failed);
	for (size_t size = 0; size < content.size; size++)
		CHECK(!perf_data_times_parse(&read, span_of(content.data, size)));
	words = (uint32_t *)content.data;
	for (unsigned int i = 0; i < 4; i++) {
		uint32_t was = words[i];

		words[i] = UINT32_MAX;
		CHECK(!perf_data_times_parse(&read, span_of(content.data, content.size)));
		words[i] = was;
	}
	CHECK_EQUAL(read.states, 0);
	REQUIRE(perf_data_times_parse(&read, span_of(content.data, content.size)));
	CHECK(!memcmp(&read, &times, sizeof(read)));
	free(content.data);
}

TEST(perf_data_times, of_one_file_exclude_earlier_files)
{
	struct perf_data_times times, earlier;

	make_times(&times);
	make_times(&earlier);
	earlier.rows[1].vcpu = 0;
	earlier.rows[0].vcpu = 3;
	perf_data_times_subtract(&times, &earlier);
	for (uint32_t i = 0; i < times.states; i++)
		CHECK_EQUAL(times.sum[i], 0);
	CHECK_EQUAL(times.rows[0].ns[0], 2 * SECOND);
}

static void record(const char *path, const struct perf_data_times *times)
{
	const struct perf_data_options options = {
		.path = path, .frequency = 1000, .vcpus = 4, .vmm_pid = 1
	};
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	perf_data_writer_set_times(writer, times);
	REQUIRE_EQUAL(perf_data_writer_close(writer), 0);
}

TEST(perf_data_times, are_in_the_report)
{
	static const char expected[] =
		"# Wall     10.0 s: 20.0 % guest user (estimated), 40.0 % guest kernel "
		"(estimated), 0.0 % kvm, 0.0 % vmm, 20.0 % waiting, 20.0 % halted, 0.0 % blocked\n"
		"#   vCPU 0 8.0 s: 25.0 % guest user (estimated), 50.0 % guest kernel "
		"(estimated), 0.0 % kvm, 0.0 % vmm, 0.0 % waiting, 25.0 % halted, 0.0 % blocked\n";
	struct perf_data_times times;
	json_t *report, *wall;
	char path[64], *text;

	snprintf(path, sizeof(path), "build/times-%d.data", getpid());
	make_times(&times);
	record(path, &times);
	text = command_output(NULL, "build/kvmscope report -i %s 2>&1", path);
	if (!strstr(text, expected))
		FAIL_TEST("the report has no wall times:\n%s", text);
	CHECK(!strstr(text, "running:"));
	free(text);
	text = command_output(NULL, "build/kvmscope report --json -i %s 2>/dev/null", path);
	unlink(path);
	report = json_loads(text, 0, NULL);
	free(text);
	wall = json_object_get(report, "wall_time");
	CHECK_EQUAL(json_integer_value(json_object_get(wall, "guest_user_estimated_ns")),
		    2 * SECOND);
	CHECK_EQUAL(json_array_size(json_object_get(wall, "vcpus")), 2);
	json_decref(report);
}

TEST(perf_data_times, without_bpf_name_what_is_missing)
{
	struct vcpu_times_rows rows = { 0 };
	struct perf_data_times times;
	char path[64], *text;

	snprintf(path, sizeof(path), "build/times-%d.data", getpid());
	set(&rows, 0, VCPU_RUNNING, 3);
	set(&rows, 0, VCPU_ASLEEP, 1);
	recorded_times(&times, &rows, VCPU_TIMES_OF_PROC);
	vcpu_times_free(&rows);
	record(path, &times);
	text = command_output(NULL, "build/kvmscope report -i %s 2>&1", path);
	unlink(path);
	if (!strstr(text, "# Wall     4.0 s: 75.0 % running, 0.0 % waiting, 25.0 % asleep\n"
			  "#   running: guest, KVM and VMM"))
		FAIL_TEST("the report has no wall times:\n%s", text);
	free(text);
}
