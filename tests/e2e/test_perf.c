// SPDX-License-Identifier: Apache-2.0
/* What we write, read by Debian's perf; what perf writes, read by us. */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample.h"
#include "tests/unit/fake_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/profile/perf_data_reader.h"
#include "vmm/profile/perf_data_writer.h"

#define VMM_PID    4242
#define FIRST_TID  5000
#define OUTPUT_MAX (8u << 20)

/* Runs COMMAND; what it prints is the caller's to free. */
static char *output_of(const char *format, ...)
{
	char command[4096], *output = malloc(OUTPUT_MAX);
	va_list arguments;
	size_t size;
	FILE *pipe;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	pipe = popen(command, "re");
	size = pipe ? fread(output, 1, OUTPUT_MAX - 1, pipe) : 0;
	output[size] = '\0';
	if (pipe)
		pclose(pipe);
	return output;
}

static bool have_perf(void)
{
	return !system("perf --version >/dev/null 2>&1");
}

static char former_home[4096];

/* A directory of its own for the test, which is HOME and so has the build-id cache. */
static void make_home(char home[64])
{
	snprintf(former_home, sizeof(former_home), "%s", getenv("HOME") ? getenv("HOME") : "/");
	strcpy(home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(home))
		abort();
	setenv("HOME", home, 1);
}

static void remove_home(const char *home)
{
	free(output_of("rm -rf %s", home));
	setenv("HOME", former_home, 1);
}

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

/* Sample number NUMBER of a recording that looks like one: two parts of four with the kernel in the chain. */
static void make_sample(struct sample *sample, unsigned int number, uint64_t text)
{
	uint64_t *chain = sample->callchain;

	memset(sample, 0, sizeof(*sample));
	sample->time = 1000000000ull + number * 250000ull;
	sample->period = 1000000 + next_random(1000);
	sample->vcpu = number % 4;
	sample->host_tid = FIRST_TID + sample->vcpu;
	sample->cpl = number % 3 ? 0 : 3;
	if (!sample->cpl) {
		sample->kernel_depth = (uint16_t)(1 + next_random(5));
		for (unsigned int i = 0; i < sample->kernel_depth; i++)
			*chain++ = text + next_random(FAKE_FUNCTIONS * FAKE_FUNCTION_SIZE);
	}
	if (sample->cpl || next_random(2)) {
		sample->user_depth = (uint16_t)(1 + next_random(4));
		for (unsigned int i = 0; i < sample->user_depth; i++)
			*chain++ = 0x400000 + next_random(0x10000);
	}
	sample->rip = sample->callchain[0];
}

struct recording {
	const char *path;
	unsigned int samples;
	unsigned int compression;
	unsigned int frequency;
	enum perspective perspective;
	uint64_t text;                  /* of addresses in the kernel */
	const struct fake_guest *guest; /* mapped after a part of the samples; NULL: no mapping */
	bool leave_open;                /* flushed and never closed */
	bool wall_clock;
};

static int open_recording(struct perf_data_writer **writer, const struct recording *recording)
{
	struct perf_data_options options = {
		.path = recording->path,
		.perspective = recording->perspective,
		.wall_clock = recording->wall_clock,
		.frequency = 1000,
		.callchains = true,
		.compression = recording->compression,
		.vcpus = 4,
		.vmm_pid = VMM_PID,
		.command_line = "kvmscope run -F 1000 --cpus 4",
		.hostname = "guest-host",
		.release = "6.1.0-test",
		.arch = "x86_64",
		.cpu_description = "A CPU of a guest",
		.memory_kib = 131072,
	};

	return perf_data_writer_open(writer, &options);
}

static void map_guest(struct perf_data_writer *writer, const struct fake_guest *guest, bool host)
{
	struct perf_data_mapping mapping = {
		.pid = -1,
		.tid = -1,
		.start = guest->image.start,
		.size = guest->image.end - guest->image.start,
		.offset = guest->image.start,
		.name = host ? "[kernel.kallsyms]" BUILD_ID_CACHE_ANCHOR : "[kernel.kallsyms]_text",
		.build_id = guest->build_id,
		.build_id_size = sizeof(guest->build_id),
		.kernel = true,
	};

	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
	mapping = (struct perf_data_mapping){
		.pid = -1,
		.tid = -1,
		.start = guest->module.start,
		.size = guest->module.size,
		.name = "[fake_module]",
		.kernel = true,
	};
	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
}

static void name_vcpus(struct perf_data_writer *writer)
{
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "vcpu %d", i);
		CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID + i, name), 0);
	}
}

static void write_samples(const struct recording *recording, struct perf_data_writer *writer)
{
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));

	random_state = 1;
	for (unsigned int i = 0; i < recording->samples; i++) {
		make_sample(sample, i, recording->text);
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == recording->samples / 3 && recording->guest)
			map_guest(writer, recording->guest, recording->perspective == PERSPECTIVE_HOST);
		if (i == recording->samples / 2)
			CHECK_EQUAL(perf_data_writer_lost(writer, sample->time, sample->vcpu, 17), 0);
		if (i % 100 == 99)
			CHECK_EQUAL(i < recording->samples / 3 ? perf_data_writer_write_out(writer)
							       : perf_data_writer_flush(writer),
				    0);
	}
	CHECK_EQUAL(perf_data_writer_flush(writer), 0);
	free(sample);
}

static void record(const struct recording *recording)
{
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(open_recording(&writer, recording), 0);
	name_vcpus(writer);
	write_samples(recording, writer);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

/* The same in a process that ends without closing: READY gets a byte when the file is there. */
static pid_t record_in_child(const struct recording *recording, int ready)
{
	struct perf_data_writer *writer;
	pid_t child = fork();

	if (child)
		return child;
	if (open_recording(&writer, recording) || write(ready, "", 1) != 1)
		_exit(1);
	write_samples(recording, writer);
	_exit(0);
}

static void record_and_leave(const struct recording *recording)
{
	int pipe_ends[2], status = -1;

	REQUIRE_EQUAL(pipe(pipe_ends), 0);
	waitpid(record_in_child(recording, pipe_ends[1]), &status, 0);
	CHECK_EQUAL(status, 0);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* The samples of a recording as `perf script -F tid,cpu,time,period,ip --ns` is to print them. */
static char *expected_script(const struct recording *recording)
{
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	char *text = malloc(OUTPUT_MAX);
	size_t used = 0;

	random_state = 1;
	for (unsigned int i = 0; i < recording->samples; i++) {
		make_sample(sample, i, recording->text);
		used += (size_t)sprintf(text + used, "%u %u %" PRIu64 ".%09" PRIu64 " %" PRIu64 ":",
					sample->host_tid, sample->vcpu, sample->time / 1000000000,
					sample->time % 1000000000, sample->period);
		for (unsigned int j = 0; j < (unsigned int)sample->kernel_depth + sample->user_depth; j++)
			used += (size_t)sprintf(text + used, " %" PRIx64, sample->callchain[j]);
		used += (size_t)sprintf(text + used, "\n");
	}
	text[used] = '\0';
	free(sample);
	return text;
}

/* One line for each sample: what perf prints on several, without the blanks. */
#define SCRIPT_TO_LINES                                                                                             \
	"awk '/^\\t/ { line = line \" \" $1; next } /^$/ { if (line) print line; line = \"\"; next } "              \
	"{ cpu = substr($2, 2, 3) + 0; time = substr($3, 1, length($3) - 1); line = $1 \" \" cpu \" \" time \" \" " \
	"$4 \":\" } END { if (line) print line }'"

static char *perf_script(const char *path)
{
	return output_of(
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
		record_and_leave(recording);
	else
		record(recording);
	actual = perf_script(recording->path);
	expected = expected_script(recording);
	check_same_lines(actual, expected);
	free(actual);
	free(expected);
}

/* Samples that a reader gave, against those that were written. */
struct comparison {
	const struct recording *recording;
	struct sample *expected;
	unsigned int samples, wrong;
	uint64_t lost;
};

static bool same_chain(const struct perf_data_sample *actual, const struct sample *expected)
{
	size_t depth = 0;

	for (size_t i = 0; i < actual->callchain_size; i++) {
		if (actual->callchain[i] >= (uint64_t)PERF_CONTEXT_MAX)
			continue;
		if (depth >= (size_t)expected->kernel_depth + expected->user_depth ||
		    actual->callchain[i] != expected->callchain[depth++])
			return false;
	}
	return depth == (size_t)expected->kernel_depth + expected->user_depth;
}

static int compare_sample(void *context, const struct perf_data_sample *actual)
{
	struct comparison *comparison = context;
	struct sample *expected = comparison->expected;

	make_sample(expected, comparison->samples++, comparison->recording->text);
	comparison->wrong +=
		actual->time != expected->time || actual->ip != expected->rip ||
		actual->period != expected->period || actual->pid != VMM_PID ||
		actual->tid != expected->host_tid || actual->cpu != expected->vcpu ||
		actual->misc != (expected->cpl ? PERF_RECORD_MISC_USER : PERF_RECORD_MISC_KERNEL) ||
		!same_chain(actual, expected);
	return 0;
}

static int compare_lost(void *context, uint64_t count)
{
	((struct comparison *)context)->lost += count;
	return 0;
}

/* Reads the recording's file and compares what is in it; gives how many samples were. */
static unsigned int read_back(const struct recording *recording, bool *cut_off)
{
	struct comparison comparison = { .recording = recording };
	struct perf_data_events events = { .sample = compare_sample,
					   .lost = compare_lost,
					   .context = &comparison };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, recording->path);

	if (error) {
		FAIL_TEST("can't open it: %s", error_message());
		return 0;
	}
	comparison.expected = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	random_state = 1;
	if (perf_data_reader_run(reader, &events))
		FAIL_TEST("can't read it: %s", error_message());
	CHECK_EQUAL(comparison.wrong, 0);
	CHECK_EQUAL(comparison.lost, comparison.samples > recording->samples / 2 + 1 ? 17 : comparison.lost);
	CHECK_EQUAL(perf_data_reader_summary(reader)->skipped, 0);
	*cut_off = perf_data_reader_summary(reader)->cut_off;
	perf_data_reader_close(reader);
	free(comparison.expected);
	return comparison.samples;
}

#define NEED_PERF                                                                                            \
	do {                                                                                                 \
		if (!have_perf())                                                                            \
			SKIP("perf (package linux-perf) does not run here");                                 \
	} while (0)

TEST(perf_data, perf_script_shows_every_sample)
{
	char home[64], path[128];

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(&(struct recording){ .path = path, .samples = 2000, .text = FAKE_TEXT });
	remove_home(home);
}

TEST(perf_data, perf_script_shows_every_compressed_sample)
{
	char home[64], path[128];

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(
		&(struct recording){ .path = path, .samples = 5000, .compression = 3, .text = FAKE_TEXT });
	remove_home(home);
}

TEST(perf_data, a_file_that_was_never_closed_reads_up_to_the_flush)
{
	char home[64], path[128];

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	check_script(
		&(struct recording){ .path = path, .samples = 300, .text = FAKE_TEXT, .leave_open = true });
	check_script(&(struct recording){
		.path = path, .samples = 3000, .compression = 1, .text = FAKE_TEXT, .leave_open = true });
	remove_home(home);
}

static void kill_writer(const struct recording *recording, unsigned int delay)
{
	int pipe_ends[2], status;
	pid_t child;
	char byte;

	REQUIRE_EQUAL(pipe(pipe_ends), 0);
	child = record_in_child(recording, pipe_ends[1]);
	CHECK_EQUAL(read(pipe_ends[0], &byte, 1), 1);
	usleep(delay);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	CHECK(WIFSIGNALED(status) || !WEXITSTATUS(status));
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* What is there after the kill is a whole number of flushed blocks, to us and to perf. */
static void check_killed(const struct recording *recording, unsigned int delay, bool with_perf)
{
	unsigned int samples;
	bool cut_off;

	kill_writer(recording, delay);
	samples = read_back(recording, &cut_off);
	CHECK(cut_off);
	if (with_perf) {
		char *lines = output_of("perf script -i %s -F time --kallsyms /dev/null 2>/dev/null | wc -l",
					recording->path);

		CHECK_EQUAL(atoi(lines), samples);
		free(lines);
	}
}

static void check_kills(unsigned int compression)
{
	char home[64], path[128];

	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	for (unsigned int i = 0; i < 100; i++)
		check_killed(&(struct recording){ .path = path,
						  .samples = 20000,
						  .compression = compression,
						  .text = FAKE_TEXT },
			     i * 97 % 5000, i % 10 == 0 && have_perf());
	remove_home(home);
}

TEST(perf_data, a_killed_writer_leaves_whole_blocks)
{
	check_kills(0);
}

TEST(perf_data, a_killed_compressing_writer_leaves_whole_blocks)
{
	check_kills(3);
}

TEST(perf_data, reader_gives_what_the_writer_was_given)
{
	char home[64], path[128];

	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	for (unsigned int compression = 0; compression <= 9; compression += 3) {
		struct recording recording = {
			.path = path, .samples = 3000, .compression = compression, .text = FAKE_TEXT
		};
		bool cut_off = true;

		record(&recording);
		CHECK_EQUAL(read_back(&recording, &cut_off), 3000);
		CHECK(!cut_off);
	}
	remove_home(home);
}

TEST(perf_data, the_file_before_is_kept)
{
	char home[64], path[128], old[160];
	struct recording recording = { .path = path, .samples = 7, .text = FAKE_TEXT };
	bool cut_off;

	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(old, sizeof(old), "%s.old", path);
	record(&recording);
	recording.samples = 9;
	record(&recording);
	CHECK_EQUAL(read_back(&recording, &cut_off), 9);
	recording.path = old;
	CHECK_EQUAL(read_back(&recording, &cut_off), 7);
	remove_home(home);
}

/* perf's own recordings: counts and sums of what it prints against what we read. */
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
	char *text =
		output_of("perf script -i %s -F period,ip,sym --max-stack 1000 --no-inline 2>/dev/null | "
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

static void check_perfs_own(const char *options)
{
	char home[64], path[128], *text;

	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	text = output_of(
		"perf record -e cpu-clock -F 5000 -g %s -o %s sh -c "
		"'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; find /usr/share/doc >/dev/null' 2>&1",
		options, path);
	if (strstr(text, "Captured and wrote"))
		compare_with_perf(path);
	else
		FAIL_TEST("perf does not record: %s", text);
	free(text);
	remove_home(home);
}

TEST(perf_data, reads_what_perf_records)
{
	NEED_PERF;
	check_perfs_own("");
}

TEST(perf_data, reads_what_perf_records_compressed)
{
	NEED_PERF;
	check_perfs_own("-z");
}

TEST(perf_data, pipe_mode_both_ways)
{
	char home[64], path[128], *lines;
	struct recording recording = { .path = path, .samples = 500, .text = FAKE_TEXT };
	struct perf_data_reader *reader;
	struct totals totals = { 0 };
	struct perf_data_events events = { .sample = add_to_totals, .context = &totals };

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/fifo", home);
	REQUIRE_EQUAL(mkfifo(path, 0600), 0);
	if (!fork()) {
		record(&recording);
		_exit(0);
	}
	lines = output_of("perf script -i - -F time < %s 2>/dev/null | grep -c :", path);
	CHECK_EQUAL(atoi(lines), 500);
	free(lines);
	wait(NULL);
	free(output_of("perf record -e cpu-clock -F 5000 -o - ls -R /usr/share/doc 2>/dev/null >%s/piped",
		       home));
	snprintf(path, sizeof(path), "%s/piped", home);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(totals.samples > 5);
	perf_data_reader_close(reader);
	remove_home(home);
}

TEST(perf_data, header_tells_of_the_guest)
{
	char home[64], path[128], *header;

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	record(&(struct recording){ .path = path, .samples = 10, .text = FAKE_TEXT, .wall_clock = true });
	header = output_of("perf report -i %s --header-only 2>&1", path);
	CHECK(strstr(header, "hostname : guest-host"));
	CHECK(strstr(header, "os release : 6.1.0-test"));
	CHECK(strstr(header, "arch : x86_64"));
	CHECK(strstr(header, "nrcpus online : 4"));
	CHECK(strstr(header, "cpudesc : A CPU of a guest"));
	CHECK(strstr(header, "total memory : 131072 kB"));
	CHECK(strstr(header, "cmdline : kvmscope run -F 1000 --cpus 4"));
	CHECK(strstr(header, "name = wall-clock"));
	CHECK(strstr(header, "time of first sample : 1.000000"));
	CHECK(strstr(header, "clockid: monotonic_raw"));
	free(header);
	remove_home(home);
}

static void cache_guest_as(const struct fake_guest *guest, bool code, struct build_id_cache_boot *boot)
{
	char cache[4096];

	CHECK_EQUAL(build_id_cache_directory(cache, sizeof(cache)), 0);
	CHECK_EQUAL(build_id_cache_add_kernel(cache, &guest->image), 0);
	CHECK_EQUAL(build_id_cache_add_boot(cache, &guest->image, boot), 0);
	if (code)
		CHECK_EQUAL(build_id_cache_add_code(cache, &guest->image, &guest->view, &guest->paging, boot),
			    0);
}

static void cache_guest(const struct fake_guest *guest, bool code)
{
	struct build_id_cache_boot boot = { 0 };

	cache_guest_as(guest, code, &boot);
}

/* As many samples as functions, one in each; then as many in the module; called by init_function. */
static void record_functions(const char *path, const struct fake_guest *guest, enum perspective perspective)
{
	struct recording recording = { .path = path, .perspective = perspective };
	struct sample *sample = calloc(1, sample_size(2));
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(open_recording(&writer, &recording), 0);
	name_vcpus(writer);
	for (unsigned int i = 0; i < 2 * FAKE_FUNCTIONS; i++) {
		uint64_t start = i < FAKE_FUNCTIONS ? guest->image.start : guest->module.start;

		*sample = (struct sample){
			.time = 1000000000ull + i * 1000000,
			.period = 1000000,
			.host_tid = FIRST_TID,
			.rip = start + i % FAKE_FUNCTIONS * FAKE_FUNCTION_SIZE + 4,
			.kernel_depth = 2,
		};
		sample->callchain[0] = sample->rip;
		sample->callchain[1] = guest->image.start + FAKE_INIT + 8;
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == 3)
			map_guest(writer, guest, perspective == PERSPECTIVE_HOST);
	}
	CHECK_EQUAL(perf_data_writer_flush(writer), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static void check_named(const char *path, const char *perf_options)
{
	char *script = output_of("perf script -i %s %s -F ip,sym 2>&1", path, perf_options), name[64];

	for (unsigned int i = 0; i < FAKE_FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "guest_function_%u\n", i);
		CHECK(strstr(script, name));
		snprintf(name, sizeof(name), "module_function_%u\n", i);
		CHECK(strstr(script, name));
	}
	CHECK(strstr(script, "init_function\n"));
	CHECK(!strstr(script, "[unknown]"));
	free(script);
}

static void check_names(bool code, uint64_t slide)
{
	char home[64], path[128];
	struct fake_guest guest;

	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	fake_guest_make(&guest, 0x5a, slide, FAKE_MODULE);
	cache_guest(&guest, code);
	record_functions(path, &guest, PERSPECTIVE_GUEST);
	check_named(path, "");
	fake_guest_free(&guest);
	remove_home(home);
}

TEST(perf_data, perf_names_kernel_and_modules_without_flags)
{
	NEED_PERF;
	check_names(true, 0);
	check_names(true, 0x4000000);
}

TEST(perf_data, perf_names_them_also_where_the_code_is_gone)
{
	NEED_PERF;
	check_names(false, 0x200000);
}

TEST(perf_data, perf_annotate_shows_the_guest_code)
{
	char home[64], path[128], *text;
	struct fake_guest guest;

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	fake_guest_make(&guest, 0x5b, 0, FAKE_MODULE);
	cache_guest(&guest, true);
	record_functions(path, &guest, PERSPECTIVE_GUEST);
	text = output_of("perf annotate --stdio -i %s guest_function_3 2>&1", path);
	CHECK(strstr(text, "push"));
	CHECK(strstr(text, "ret"));
	CHECK(strstr(text, "100.00"));
	free(text);
	text = output_of("perf annotate --stdio -i %s module_function_2 2>&1", path);
	CHECK(strstr(text, "push"));
	CHECK(strstr(text, "ret"));
	free(text);
	fake_guest_free(&guest);
	remove_home(home);
}

TEST(perf_data, another_boot_of_the_kernel_gives_no_wrong_module_names)
{
	char home[64], path[128], *script;
	struct fake_guest guest, other;

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	fake_guest_make(&other, 0x5c, 0x200000, FAKE_MODULE + FAKE_FUNCTION_SIZE * 16);
	cache_guest(&other, true);
	fake_guest_make(&guest, 0x5c, 0x600000, FAKE_MODULE);
	record_functions(path, &guest, PERSPECTIVE_GUEST);
	script = output_of("perf script -i %s -F ip,sym 2>&1", path);
	CHECK(strstr(script, "guest_function_3\n"));
	CHECK(!strstr(script, "module_function"));
	free(script);
	fake_guest_free(&guest);
	fake_guest_free(&other);
	remove_home(home);
}

/* Guest chains too, and machine and vCPU; without the mount nothing, above all not the host's names. */
TEST(perf_data, perf_names_the_guest_in_the_host_perspective)
{
	char home[64], path[128], mount[160], *script;
	struct build_id_cache_boot boot = { 0 };
	struct fake_guest guest;

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(mount, sizeof(mount), "%s.guestmount", path);
	fake_guest_make(&guest, 0x5e, 0x600000, FAKE_MODULE);
	cache_guest_as(&guest, true, &boot);
	CHECK_EQUAL(build_id_cache_link_guest(mount, VMM_PID, &boot), 0);
	record_functions(path, &guest, PERSPECTIVE_HOST);
	script = output_of("perf script -i %s --guestmount %s -F machine_pid,vcpu,comm,ip,sym 2>&1", path,
			   mount);
	CHECK(strstr(script, "guest_function_3\n"));
	CHECK(strstr(script, "module_function_3\n"));
	CHECK(strstr(script, "init_function\n"));
	CHECK(strstr(script, "VM: 4242 VCPU:000"));
	CHECK(strstr(script, "vcpu 0"));
	CHECK(!strstr(script, "[unknown]"));
	free(script);
	script = output_of(
		"perf kvm --host --guest --guestmount=%s report --stdio --no-children -g none -i %s 2>/dev/null | "
		"grep -c '\\[g\\] .*_function_'",
		mount, path);
	CHECK_EQUAL(atoi(script), 2 * FAKE_FUNCTIONS);
	free(script);
	script = output_of("perf script -i %s -F ip,sym 2>/dev/null | grep -c '[^ ] [^[]'", path);
	CHECK_EQUAL(atoi(script), 0);
	free(script);
	fake_guest_free(&guest);
	remove_home(home);
}

TEST(perf_data, perf_report_gives_the_shares_that_were_written)
{
	char home[64], path[128], *report;
	struct fake_guest guest;

	NEED_PERF;
	make_home(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	fake_guest_make(&guest, 0x5d, 0, FAKE_MODULE);
	cache_guest(&guest, true);
	record_functions(path, &guest, PERSPECTIVE_GUEST);
	report = output_of(
		"perf report -i %s --stdio --no-children -g none -s sym -F overhead,sample,sym 2>/dev/null | "
		"grep -c '6.25%% *1  .k. .*function_'",
		path);
	CHECK_EQUAL(atoi(report), 2 * FAKE_FUNCTIONS);
	free(report);
	fake_guest_free(&guest);
	remove_home(home);
}
