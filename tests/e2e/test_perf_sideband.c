/* SPDX-License-Identifier: Apache-2.0 */
/* perf and kvmscope read the guest's processes and their mappings in the same way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/sideband_record.h"
#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/sideband_guest.h"

/* The last component of a path, without the bracket that perf script prints after it. */
static const char *image_of(char *line)
{
	char *open = strrchr(line, '('), *slash, *end;

	if (!open)
		return "";
	end = strchr(open, ')');
	if (end)
		*end = '\0';
	slash = strrchr(open, '/');
	return slash ? slash + 1 : open + 1;
}

static void check_line(char *line, const struct sideband_guest_sample *right)
{
	size_t length = strlen(right->comm);

	line += strspn(line, " ");
	CHECK(!strncmp(line, right->comm, length));
	CHECK_EQUAL(strtoul(line + length, NULL, 10), right->pid);
	CHECK_STRING(image_of(line), right->image);
}

static void check_script(const char *input)
{
	char *script = perf_output(
		"perf script %s -G -F comm,pid,ip,sym,dso --kallsyms /dev/null 2>&1", input);
	char *rest = script, *line;
	size_t count = 0;

	while ((line = strsep(&rest, "\n")))
		if (*line && count++ < sideband_guest_count)
			check_line(line, &sideband_guest_samples[count - 1]);
	CHECK_EQUAL(count, sideband_guest_count);
	free(script);
}

TEST(perf_sideband, perf_attributes_each_sample_correctly)
{
	char home[64], path[128], input[160];

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(input, sizeof(input), "-i %s", path);
	REQUIRE_EQUAL(sideband_guest_record(path, PERSPECTIVE_GUEST, NULL), 0);
	check_script(input);
	perf_home_leave(home);
}

#define PROCESS 60
#define CODE    0x400000ull

static void write_mapping(struct perf_data_writer *writer, const char *name, uint64_t time)
{
	struct {
		struct sideband_mmap mmap;
		char name[24];
	} record = { .mmap = { .head = { .type = SIDEBAND_MMAP,
					 .time = time,
					 .pid = PROCESS,
					 .tid = PROCESS },
			       .start = CODE,
			       .length = 0x1000,
			       .prot = 5,
			       .map_flags = 2 } };

	record.mmap.head.size = sideband_size(sizeof(record.mmap), name);
	REQUIRE(record.mmap.head.size <= sizeof(record));
	snprintf(record.mmap.name, sizeof(record.name), "%s", name);
	CHECK_EQUAL(perf_data_writer_sideband(writer, &record.mmap.head), 0);
}

static void write_sample(struct perf_data_writer *writer, uint64_t time)
{
	const struct sample sample = { .time = time,
				       .period = 1000,
				       .rip = CODE + 0x10,
				       .cpl = 3,
				       .pid = PROCESS,
				       .tid = PROCESS,
				       .host_tid = FIRST_TID };

	CHECK_EQUAL(perf_data_writer_sample(writer, &sample), 0);
}

/*
 * The mapping of /bin/new is reported long before earlier samples are written, round after round.
 */
static void record_mappings_first(const char *path)
{
	struct recording recording = { .path = path, .perspective = PERSPECTIVE_GUEST };
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, &recording), 0);
	write_mapping(writer, "/bin/old", 100);
	write_mapping(writer, "/bin/new", 1000);
	for (uint64_t time = 200; time < 1300; time += 100) {
		write_sample(writer, time);
		CHECK_EQUAL(perf_data_writer_flush(writer, time + 1), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

TEST(perf_sideband, perf_shows_samples_in_order_of_time)
{
	char home[64], path[128], *script;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	record_mappings_first(path);
	script = perf_output("perf script -i %s -G -F ip,dso 2>&1 | sort | uniq -c | tr -s ' '",
			     path);
	CHECK(strstr(script, " 8 400010 (/bin/old)\n"));
	CHECK(strstr(script, " 3 400010 (/bin/new)\n"));
	free(script);
	perf_home_leave(home);
}

/* Rounds with loss counts are rounds for perf as well, in a file and in a pipe. */
TEST(perf_sideband, perf_reads_a_pipe_with_losses)
{
	char home[64], path[128], input[160];
	int status;
	pid_t child;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/pipe", home);
	snprintf(input, sizeof(input), "-i - < %s", path);
	REQUIRE_EQUAL(mkfifo(path, 0600), 0);
	child = fork();
	if (!child)
		_exit(sideband_guest_record(path, PERSPECTIVE_GUEST, NULL) ? 1 : 0);
	check_script(input);
	waitpid(child, &status, 0);
	CHECK_EQUAL(status, 0);
	perf_home_leave(home);
}

TEST(perf_sideband, perf_inject_keeps_the_counts_of_losses)
{
	char home[64], path[128], *report;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	REQUIRE_EQUAL(sideband_guest_record(path, PERSPECTIVE_GUEST, NULL), 0);
	free(perf_output("perf inject -i %s -o %s.injected 2>&1", path, path));
	report = perf_output("build/kvmscope report --json -i %s.injected 2>&1", path);
	CHECK(strstr(report, "\"samples\": 15,"));
	CHECK(strstr(report, "\"lost_no_mapping\": 3,"));
	free(report);
	perf_home_leave(home);
}

TEST(perf_sideband, perf_inject_keeps_the_description_of_a_flight_recording)
{
	char home[64], path[128], *report;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	REQUIRE_EQUAL(sideband_guest_flight(path), 0);
	free(perf_output("perf inject -i %s -o %s.injected 2>&1", path, path));
	report = perf_output("build/kvmscope report -i %s.injected 2>&1", path);
	CHECK(strstr(report, "# Flight "));
	free(report);
	perf_home_leave(home);
}

TEST(perf_sideband, report_shows_losses)
{
	char home[64], path[128], *report;

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	REQUIRE_EQUAL(sideband_guest_record(path, PERSPECTIVE_GUEST, NULL), 0);
	report = perf_output("build/kvmscope report -i %s 2>&1", path);
	CHECK(strstr(
		report,
		"# 3 user-space samples at addresses without a known mapping (lost_no_mapping)\n"));
	free(report);
	report = perf_output("build/kvmscope report --json -i %s 2>&1", path);
	CHECK(strstr(report, "\"lost_no_mapping\": 3,"));
	CHECK(strstr(report, "\"lost_overflow\": 0,"));
	free(report);
	perf_home_leave(home);
}
