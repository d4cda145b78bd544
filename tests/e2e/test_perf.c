/* SPDX-License-Identifier: Apache-2.0 */
/* Files that we write, read by Debian's perf; and files that perf writes, read by us. */
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

#define OUTPUT_MAX (8u << 20)

/*
 * The samples of a recording in the expected format of `perf script -F tid,cpu,time,period,ip
 * --ns`.
 */
static char *expected_script(const struct recording *recording)
{
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	char *text = malloc(OUTPUT_MAX);
	size_t used = 0;

	recording_rewind();
	for (unsigned int i = 0; i < recording->samples; i++) {
		recording_sample(sample, i, recording->text);
		used += (size_t)sprintf(text + used, "%u %u %" PRIu64 ".%09" PRIu64 " %" PRIu64 ":",
					sample->host_tid, sample->vcpu, sample->time / 1000000000,
					sample->time % 1000000000, sample->period);
		for (unsigned int j = 0;
		     j < (unsigned int)sample->kernel_depth + sample->user_depth; j++)
			used += (size_t)sprintf(text + used, " %" PRIx64, sample->callchain[j]);
		used += (size_t)sprintf(text + used, "\n");
	}
	text[used] = '\0';
	free(sample);
	return text;
}

/* Joins perf's lines of each sample into one, without blanks. */
#define SCRIPT_TO_LINES                                                                                             \
	"awk '/^\\t/ { line = line \" \" $1; next } /^$/ { if (line) print line; line = \"\"; next } "              \
	"{ cpu = substr($2, 2, 3) + 0; time = substr($3, 1, length($3) - 1); line = $1 \" \" cpu \" \" time \" \" " \
	"$4 \":\" } END { if (line) print line }'"

static char *perf_script(const char *path)
{
	return perf_output(
		"perf script -i %s -F tid,cpu,time,period,ip --ns --kallsyms /dev/null 2>/dev/null | " SCRIPT_TO_LINES,
		path);
}

static void check_same_lines(const char *actual, const char *expected)
{
	unsigned int line = 1;

	while (*actual && *expected) {
		size_t size = strcspn(expected, "\n");

		if (strncmp(actual, expected, size + 1)) {
			FAIL_TEST("sample %u is \"%.*s\", expected \"%.*s\"", line,
				  (int)strcspn(actual, "\n"), actual, (int)size, expected);
			return;
		}
		actual += size + 1;
		expected += size + 1;
		line++;
	}
	CHECK(!*actual && !*expected);
}

static void check_script(const struct recording *recording)
{
	char *actual, *expected;

	if (recording->leave_open)
		recording_leave(recording);
	else
		recording_write(recording);
	actual = perf_script(recording->path);
	expected = expected_script(recording);
	check_same_lines(actual, expected);
	free(actual);
	free(expected);
}

TEST(perf_data, perf_script_shows_every_sample)
{
	char home[64], path[128];

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(&(struct recording){ .path = path, .samples = 2000, .text = FAKE_TEXT });
	perf_home_leave(home);
}

/* One sample with the largest depth; half of its callers are in the kernel. */
static void write_deepest(const struct recording *recording)
{
	struct sample *sample = calloc(1, sample_size(SAMPLE_CALLCHAIN_MAX));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, recording), 0);
	recording_name_vcpus(writer);
	sample->time = 1000000000;
	sample->period = 1000000;
	sample->pid = VMM_PID;
	sample->tid = sample->host_tid = FIRST_TID;
	sample->kernel_depth = SAMPLE_CALLCHAIN_MAX / 2;
	sample->user_depth = SAMPLE_CALLCHAIN_MAX - sample->kernel_depth;
	for (unsigned int i = 0; i < SAMPLE_CALLCHAIN_MAX; i++)
		sample->callchain[i] = (i < sample->kernel_depth ? FAKE_TEXT : 0x400000) + i;
	sample->rip = sample->callchain[0];
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static unsigned int frames_in_script(const char *path, const char *options)
{
	char *text = perf_output(
		"perf script -i %s -F ip --kallsyms /dev/null %s 2>/dev/null | grep -c .", path,
		options);
	unsigned int count = (unsigned int)atoi(text);

	free(text);
	return count;
}

/* docs/sampling.md: perf's own limit applies to frames, not to the markers between them. */
TEST(perf_data, perf_script_shows_the_deepest_chain)
{
	char home[64], path[128];

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	write_deepest(&(struct recording){ .path = path, .text = FAKE_TEXT });
	CHECK_EQUAL(frames_in_script(path, "--max-stack 128"), SAMPLE_CALLCHAIN_MAX);
	CHECK_EQUAL(frames_in_script(path, ""), 127);
	perf_home_leave(home);
}

TEST(perf_data, perf_script_shows_every_compressed_sample)
{
	char home[64], path[128];

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(&(struct recording){
		.path = path, .samples = 5000, .compression = 3, .text = FAKE_TEXT });
	perf_home_leave(home);
}

TEST(perf_data, unclosed_file_is_readable_up_to_the_last_flush)
{
	char home[64], path[128];

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(&(struct recording){
		.path = path, .samples = 300, .text = FAKE_TEXT, .leave_open = true });
	check_script(&(struct recording){ .path = path,
					  .samples = 3000,
					  .compression = 1,
					  .text = FAKE_TEXT,
					  .leave_open = true });
	perf_home_leave(home);
}

TEST(perf_data, reader_returns_exactly_the_written_samples)
{
	char home[64], path[128];

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	for (unsigned int compression = 0; compression <= 9; compression += 3) {
		struct recording recording = {
			.path = path, .samples = 3000, .compression = compression, .text = FAKE_TEXT
		};
		bool cut_off = true;

		recording_write(&recording);
		CHECK_EQUAL(recording_read(&recording, &cut_off), 3000);
		CHECK(!cut_off);
	}
	perf_home_leave(home);
}

TEST(perf_data, previous_file_is_kept)
{
	char home[64], path[128], old[160];
	struct recording recording = { .path = path, .samples = 7, .text = FAKE_TEXT };
	bool cut_off;

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(old, sizeof(old), "%s.old", path);
	recording_write(&recording);
	recording.samples = 9;
	recording_write(&recording);
	CHECK_EQUAL(recording_read(&recording, &cut_off), 9);
	recording.path = old;
	CHECK_EQUAL(recording_read(&recording, &cut_off), 7);
	perf_home_leave(home);
}

/* perf's own recordings: counts and sums of perf's output, compared with our reader. */
struct totals {
	unsigned int samples;
	uint64_t ips, periods;
	unsigned int chain;
};

static int add_to_totals(void *context, const struct perf_data_sample *sample)
{
	struct totals *totals = context;

	totals->samples++;
	totals->ips += sample->ip;
	totals->periods += sample->period;
	for (size_t i = 0; i < sample->callchain_size; i++)
		totals->chain += sample->callchain[i] < (uint64_t)PERF_CONTEXT_MAX;
	return 0;
}

static void read_totals(const char *path, struct totals *totals)
{
	struct perf_data_events events = { .sample = add_to_totals, .context = totals };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(!strcmp(perf_data_reader_summary(reader)->event_name, "cpu-clock"));
	CHECK_EQUAL(perf_data_reader_summary(reader)->frequency, 5000);
	CHECK(*perf_data_reader_summary(reader)->release);
	perf_data_reader_close(reader);
}

static void compare_with_perf(const char *path)
{
	char *text = perf_output(
		"perf script -i %s -F period,ip,sym --max-stack 1000 --no-inline 2>/dev/null | "
		"awk '/^\t|^ +[0-9a-f]{8,} / { chain++; next } /^ *[0-9]+ *$/ { n++; p += $1 } "
		"END { print n, p, chain }'",
		path);
	struct totals totals = { 0 };
	unsigned long long samples = 0, periods = 0, chain = 0;

	CHECK_EQUAL(sscanf(text, "%llu %llu %llu", &samples, &periods, &chain), 3);
	read_totals(path, &totals);
	CHECK(samples > 10);
	CHECK_EQUAL(totals.samples, samples);
	CHECK_EQUAL(totals.periods, periods);
	CHECK_EQUAL(totals.chain, chain);
	free(text);
}

static void check_recording_of_perf(const char *options)
{
	char home[64], path[128], *text;

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	text = perf_output(
		"perf record -e cpu-clock -F 5000 -g %s -o %s sh -c "
		"'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; find /usr/share/doc >/dev/null' 2>&1",
		options, path);
	if (strstr(text, "Captured and wrote"))
		compare_with_perf(path);
	else
		FAIL_TEST("perf cannot record: %s", text);
	free(text);
	perf_home_leave(home);
}

TEST(perf_data, reads_recordings_of_perf)
{
	NEED_PERF;
	check_recording_of_perf("");
}

TEST(perf_data, reads_compressed_recordings_of_perf)
{
	NEED_PERF;
	check_recording_of_perf("-z");
}

TEST(perf_data, pipes_between_perf_and_kvmscope_work_in_both_directions)
{
	char home[64], path[128], *lines;
	struct recording recording = { .path = path, .samples = 500, .text = FAKE_TEXT };
	struct perf_data_reader *reader;
	struct totals totals = { 0 };
	struct perf_data_events events = { .sample = add_to_totals, .context = &totals };

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/fifo", home);
	REQUIRE_EQUAL(mkfifo(path, 0600), 0);
	if (!fork()) {
		recording_write(&recording);
		_exit(0);
	}
	lines = perf_output("perf script -i - -F time < %s 2>/dev/null | grep -c :", path);
	CHECK_EQUAL(atoi(lines), 500);
	free(lines);
	wait(NULL);
	free(perf_output(
		"perf record -e cpu-clock -F 5000 -o - ls -R /usr/share/doc 2>/dev/null >%s/piped",
		home));
	snprintf(path, sizeof(path), "%s/piped", home);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(totals.samples > 5);
	perf_data_reader_close(reader);
	perf_home_leave(home);
}

TEST(perf_data, header_describes_the_guest)
{
	char home[64], path[128], *header;

	NEED_PERF;
	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	recording_write(&(struct recording){
		.path = path, .samples = 10, .text = FAKE_TEXT, .wall_clock = true });
	header = perf_output("perf report -i %s --header-only 2>&1", path);
	CHECK(strstr(header, "hostname : guest-host"));
	CHECK(strstr(header, "os release : 6.1.0-test"));
	CHECK(strstr(header, "arch : x86_64"));
	CHECK(strstr(header, "nrcpus online : 4"));
	CHECK(strstr(header, "cpudesc : A CPU of a guest"));
	CHECK(strstr(header, "cpuid : GenuineIntel,6,85,7"));
	CHECK(strstr(header, "total memory : 131072 kB"));
	CHECK(strstr(header, "cmdline : kvmscope run -F 1000 --cpus 4"));
	CHECK(strstr(header, "name = wall-clock"));
	CHECK(strstr(header, "time of first sample : 1.000000"));
	CHECK(strstr(header, "clockid: monotonic_raw"));
	free(header);
	perf_home_leave(home);
}
