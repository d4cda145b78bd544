// SPDX-License-Identifier: Apache-2.0
/* kvmscope report and export beside Debian's perf on the same file: they agree to the sample. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample.h"
#include "tests/e2e/command.h"
#include "tests/unit/fake_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/profile/perf_data_writer.h"

#define SAMPLES 3000
#define VMM_PID 4242

static uint32_t random_state;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

/* An address in one of the functions; those of low numbers are hotter. */
static uint64_t next_address(uint64_t start)
{
	return start + next_random(1 + next_random(FAKE_FUNCTIONS)) * FAKE_FUNCTION_SIZE +
	       next_random(FAKE_FUNCTION_SIZE);
}

static void make_sample(struct sample *sample, unsigned int number)
{
	uint64_t *chain = sample->callchain;

	memset(sample, 0, sizeof(*sample));
	sample->time = 1000000000ull + number * 250000ull;
	sample->period = 1000000 + next_random(1000);
	sample->vcpu = number % 2;
	sample->host_tid = 5000 + sample->vcpu;
	sample->cpl = number % 5 ? 0 : 3;
	if (!sample->cpl) {
		sample->kernel_depth = (uint16_t)(1 + next_random(6));
		for (unsigned int i = 0; i < sample->kernel_depth; i++)
			*chain++ = next_address(number % 7 || i ? FAKE_TEXT : FAKE_MODULE);
	}
	if (sample->cpl || next_random(2)) {
		sample->user_depth = (uint16_t)(1 + next_random(3));
		for (unsigned int i = 0; i < sample->user_depth; i++)
			*chain++ = 0x400000 + next_random(8);
	}
	sample->rip = sample->callchain[0];
}

static void map_guest(struct perf_data_writer *writer, const struct fake_guest *guest)
{
	struct perf_data_mapping mapping = {
		.pid = -1,
		.tid = -1,
		.start = guest->image.start,
		.size = guest->image.end - guest->image.start,
		.offset = guest->image.start,
		.name = "[kernel.kallsyms]_text",
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

static void write_recording(const char *path, const struct fake_guest *guest)
{
	struct perf_data_options options = {
		.path = path,
		.frequency = 1000,
		.callchains = true,
		.vcpus = 2,
		.vmm_pid = VMM_PID,
		.command_line = "kvmscope run --cpus 2",
		.hostname = "guest",
		.release = "6.1.0-test",
		.arch = "x86_64",
	};
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	struct perf_data_writer *writer;

	random_state = 1;
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	map_guest(writer, guest);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, 5000, "vcpu 0"), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, 5001, "vcpu 1"), 0);
	for (unsigned int i = 0; i < SAMPLES; i++) {
		make_sample(sample, i);
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == SAMPLES / 2)
			CHECK_EQUAL(perf_data_writer_lost(writer, sample->time, sample->vcpu, 17), 0);
		if (i % 500 == 499)
			CHECK_EQUAL(perf_data_writer_flush(writer), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

/* A home with a recording in it, and the names of its guest in its build-id cache. */
struct fixture {
	char home[64], former_home[4096], recording[128];
	struct fake_guest guest;
};

static void fixture_make(struct fixture *fixture)
{
	struct build_id_cache_boot boot = { 0 };
	char cache[128];

	snprintf(fixture->former_home, sizeof(fixture->former_home), "%s",
		 getenv("HOME") ? getenv("HOME") : "/");
	strcpy(fixture->home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(fixture->home))
		abort();
	setenv("HOME", fixture->home, 1);
	snprintf(fixture->recording, sizeof(fixture->recording), "%s/perf.data", fixture->home);
	snprintf(cache, sizeof(cache), "%s/.debug", fixture->home);
	fake_guest_make(&fixture->guest, 0x17, 0, FAKE_MODULE);
	CHECK_EQUAL(build_id_cache_add_kernel(cache, &fixture->guest.image), 0);
	CHECK_EQUAL(build_id_cache_add_boot(cache, &fixture->guest.image, &boot), 0);
	write_recording(fixture->recording, &fixture->guest);
}

static void fixture_free(struct fixture *fixture)
{
	fake_guest_free(&fixture->guest);
	free(command_output(NULL, "rm -rf %s", fixture->home));
	setenv("HOME", fixture->former_home, 1);
}

static void check_same(const char *what, char *ours, char *theirs)
{
	CHECK(*ours);
	if (strcmp(ours, theirs) != 0)
		FAIL_TEST("%s: ours is\n%.2000s\nperf's is\n%.2000s", what, ours, theirs);
	free(ours);
	free(theirs);
}

/* Our rows with percentages and counts as they are, the vCPU share left out, without separators of thousands.
 */
#define OURS "grep -v '^#' | sed 's/,//g; s/^ *//; s/ *$//; s/  */ /g' | sort"
/* perf's rows without what tells kernel and user apart. */
#define THEIRS "grep -v '^#' | sed -E 's/\\[[k.]\\] //; /^ *$/d; s/^ *//; s/ *$//; s/ +/ /g' | sort"

static bool have_perf(void)
{
	return command_succeeds("perf --version");
}

TEST(report, agrees_with_perf_to_the_sample)
{
	struct fixture fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	fixture_make(&fixture);
	check_same(
		"functions",
		command_output(NULL, "build/kvmscope report -i %s --sort symbol,vcpu | " OURS,
			       fixture.recording),
		command_output(
			NULL,
			"perf report -i %s --stdio --no-children -g none -s cpu,sym -F overhead,sample,cpu,sym "
			"2>/dev/null | sed -E 's/^(.*) 00([0-9])/\\1 \\2/' | " THEIRS,
			fixture.recording));
	check_same(
		"images",
		command_output(NULL, "build/kvmscope report -i %s --sort image,vcpu | " OURS,
			       fixture.recording),
		command_output(
			NULL,
			"perf report -i %s --stdio --no-children -g none -s cpu,dso -F overhead,sample,cpu,dso "
			"2>/dev/null | sed -E 's/^(.*) 00([0-9])/\\1 \\2/' | " THEIRS,
			fixture.recording));
	fixture_free(&fixture);
}

TEST(report, counts_callers_as_perf_does)
{
	struct fixture fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	fixture_make(&fixture);
	check_same(
		"callers",
		command_output(NULL,
			       "build/kvmscope report -i %s --children --sort symbol | "
			       "awk '/^#/ { next } { print $1, $2, $NF }' | sort",
			       fixture.recording),
		command_output(
			NULL,
			"perf report -i %s --stdio --children -g none -s sym -F overhead_children,overhead,sym "
			"2>/dev/null | " THEIRS,
			fixture.recording));
	fixture_free(&fixture);
}

TEST(report, writes_samples_as_perf_script_does)
{
	struct fixture fixture;

	if (!have_perf())
		SKIP("perf is not installed");
	fixture_make(&fixture);
	check_same("script",
		   command_output(NULL, "build/kvmscope export --format script -i %s", fixture.recording),
		   command_output(NULL, "perf script -i %s 2>/dev/null", fixture.recording));
	fixture_free(&fixture);
}

/* A recording of perf's own, of processes that come and go: the same names for the same samples. */
TEST(report, reads_what_perf_records)
{
	struct fixture fixture;
	char path[128];

	if (!have_perf())
		SKIP("perf is not installed");
	fixture_make(&fixture);
	snprintf(path, sizeof(path), "%s/own.data", fixture.home);
	if (setenv("RECORDING", path, 1) ||
	    !command_succeeds(
		    "perf record -o $RECORDING -F 4000 -e cpu-clock -- "
		    "sh -c 'for i in 1 2 3; do find /usr/share/doc -maxdepth 2 | sort | md5sum; done'")) {
		fixture_free(&fixture);
		SKIP("perf can not record here");
	}
	/* perf makes up names for procedure linkage tables, which we do not. */
	check_same(
		"script", command_output(NULL, "build/kvmscope export --format script -i %s", path),
		command_output(
			NULL,
			"perf script -i %s 2>/dev/null | sed -E 's/ [^ ]+@plt\\+0x[0-9a-f]+ / [unknown] /'",
			path));
	fixture_free(&fixture);
}

static json_t *json_report(const char *options, const char *recording)
{
	char *text = command_output(NULL, "build/kvmscope report --json %s -i %s", options, recording);
	json_t *report = json_loads(text, 0, NULL);

	if (!report)
		FAIL_TEST("no JSON: %.500s", text);
	free(text);
	return report;
}

static json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

TEST(report, says_in_json_what_the_file_holds)
{
	struct fixture fixture;
	json_int_t samples = 0;
	json_t *report, *row;
	size_t index;

	fixture_make(&fixture);
	report = json_report("", fixture.recording);
	CHECK_EQUAL(number_of(report, "samples"), SAMPLES);
	CHECK_EQUAL(number_of(report, "lost"), 17);
	CHECK(json_is_false(json_object_get(report, "cut_off")));
	CHECK_STRING(json_string_value(json_object_get(report, "release")), "6.1.0-test");
	CHECK_STRING(json_string_value(json_object_get(report, "event")), "cpu-clock");
	json_array_foreach(json_object_get(report, "rows"), index, row) samples += number_of(row, "samples");
	CHECK_EQUAL(samples, SAMPLES);
	json_decref(report);

	report = json_report("--vcpu 1", fixture.recording);
	CHECK_EQUAL(number_of(report, "samples"), SAMPLES / 2);
	json_decref(report);

	report = json_report("-n 2", fixture.recording);
	CHECK_EQUAL(json_array_size(json_object_get(report, "rows")), 2);
	CHECK(number_of(report, "hidden_rows") > 2);
	json_decref(report);
	fixture_free(&fixture);
}

TEST(report, gives_no_names_that_are_not_certain)
{
	struct fixture fixture;
	json_t *report, *row;
	size_t index;

	fixture_make(&fixture);
	free(command_output(NULL, "rm -rf %s/.debug", fixture.home));
	report = json_report("", fixture.recording);
	json_array_foreach(json_object_get(report, "rows"), index, row)
		CHECK(json_is_null(json_object_get(row, "function")));
	CHECK(strstr(json_string_value(json_object_get(report, "note")), "--kallsyms"));
	json_decref(report);
	fixture_free(&fixture);
}

TEST(report, takes_names_from_a_file_of_the_user)
{
	struct fixture fixture;
	char *text;

	fixture_make(&fixture);
	text = command_output(NULL,
			      "rm -rf %s/.debug; echo '%llx T only_one' > %s/kallsyms; "
			      "build/kvmscope report -i %s --kallsyms %s/kallsyms -n 1",
			      fixture.home, FAKE_TEXT, fixture.home, fixture.recording, fixture.home);
	CHECK(strstr(text, "only_one"));
	free(text);
	fixture_free(&fixture);
}

TEST(report, reads_what_a_killed_recorder_left)
{
	struct fixture fixture;
	json_t *report;
	char path[160];

	fixture_make(&fixture);
	snprintf(path, sizeof(path), "%s/cut.data", fixture.home);
	free(command_output(NULL, "head -c 100000 %s > %s", fixture.recording, path));
	report = json_report("", path);
	CHECK(json_is_true(json_object_get(report, "cut_off")));
	CHECK(number_of(report, "samples") > 100);
	CHECK(number_of(report, "samples") < SAMPLES);
	json_decref(report);
	fixture_free(&fixture);
}

static void check_failure(const char *arguments, int status, const char *message)
{
	int ended;
	char *text = command_output(&ended, "build/kvmscope %s 2>&1", arguments);

	CHECK_EQUAL(ended, status);
	if (!strstr(text, message))
		FAIL_TEST("kvmscope %s says \"%s\", which lacks \"%s\"", arguments, text, message);
	free(text);
}

TEST(report, says_what_is_wrong)
{
	check_failure("report -i build/no-such-file", 1, "build/no-such-file");
	check_failure("report -i Makefile", 1, "Makefile");
	check_failure("report --sort colour", 2, "symbol, image, vcpu, comm, pid");
	check_failure("report --vcpu x", 2, "'x' is no number");
	check_failure("report --percent-limit 101", 2, "no percentage");
	check_failure("export", 2, "--format");
	check_failure("export --format svg", 2, "html, folded or script");
	check_failure("export --format html -i build/no-such-file -o build/never.html", 1,
		      "build/no-such-file");
	CHECK(access("build/never.html", F_OK) && access("build/never.html.partial", F_OK));
	check_failure("report --help", 0, "Examples:");
	check_failure("export --help", 0, "Examples:");
}

TEST(report, folds_stacks_for_flame_graph_tools)
{
	struct fixture fixture;
	unsigned int samples = 0, count;
	char *text, *rest = NULL;

	fixture_make(&fixture);
	text = command_output(NULL, "build/kvmscope export --format folded -i %s", fixture.recording);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *space = strrchr(line, ' ');

		REQUIRE(space && sscanf(space, " %u", &count) == 1 && count);
		CHECK(!strncmp(line, "vcpu 0;", 7) || !strncmp(line, "vcpu 1;", 7));
		samples += count;
	}
	CHECK_EQUAL(samples, SAMPLES);
	free(text);
	fixture_free(&fixture);
}
