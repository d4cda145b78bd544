/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder from its user's view: kvmscope run --flight, SIGUSR2, kvmscope dump. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/control/control_client.h"
#include "vmm/perf_data/perf_data_reader.h"

struct setting {
	char directory[64]; /* no '_' in paths: program.h replaces it by a space */
	char path[96];      /* the first recording */
	char socket[96];
	struct program program;
};

/* Starts a guest that spins, with OPTIONS, and lets it run for a while. */
static void start(struct setting *setting, const char *options)
{
	char arguments[512];

	strcpy(setting->directory, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(setting->directory))
		abort();
	for (char *at = setting->directory; *at; at++)
		CHECK(*at != '_');
	snprintf(setting->path, sizeof(setting->path), "%s/perf.data", setting->directory);
	snprintf(setting->socket, sizeof(setting->socket), "%s/socket", setting->directory);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 --no-buildid-cache "
		 "--append program=spin -o %s --control %s %s",
		 setting->path, setting->socket, options);
	program_start(&setting->program, arguments);
	CHECK(program_wait_for(&setting->program, "spinning"));
	usleep(500000);
}

static void stop(struct setting *setting)
{
	char command[128];

	kill(setting->program.pid, SIGTERM);
	program_wait(&setting->program);
	CHECK_EQUAL(setting->program.status, 0);
	snprintf(command, sizeof(command), "rm -rf %s", setting->directory);
	CHECK_EQUAL(system(command), 0);
}

/* Sends SIGUSR2 and waits until the file with SUFFIX is complete. */
static void signal_and_wait(struct setting *setting, const char *suffix)
{
	char text[256];

	kill(setting->program.pid, SIGUSR2);
	snprintf(text, sizeof(text), "flight recording %s%s: ", setting->path, suffix);
	CHECK(program_wait_for(&setting->program, text));
}

struct seen {
	uint64_t samples, first, last;
	struct perf_data_flight flight;
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	if (!seen->samples++)
		seen->first = sample->time;
	CHECK(sample->time >= seen->last);
	seen->last = sample->time;
	return 0;
}

/* perf, if it is installed, must show the same. */
static void check_with_perf(const char *path, uint64_t samples)
{
	char command[256], line[64] = "";
	FILE *perf;

	if (system("perf --version > /dev/null 2>&1"))
		return;
	snprintf(command, sizeof(command),
		 "perf script -i %s -F time 2> /dev/null | grep -c :", path);
	perf = popen(command, "r");
	REQUIRE(perf);
	CHECK(fgets(line, sizeof(line), perf));
	pclose(perf);
	CHECK_EQUAL(atoll(line), (long long)samples);
}

static void see(const char *path, struct seen *seen)
{
	struct perf_data_events events = { .sample = see_sample, .context = seen };
	struct perf_data_reader *reader;

	*seen = (struct seen){ 0 };
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(!perf_data_reader_summary(reader)->cut_off);
	seen->flight = perf_data_reader_summary(reader)->flight;
	perf_data_reader_close(reader);
	check_with_perf(path, seen->samples);
}

/* BEGUN is a time before the run. The recording cannot be longer than the run. */
static void check_window(const struct seen *seen, uint64_t begun, uint64_t before, uint64_t after,
			 const char *kind)
{
	uint64_t trigger = seen->flight.triggers[0].time;

	REQUIRE_EQUAL(seen->flight.count, 1);
	CHECK_STRING(seen->flight.triggers[0].kind, kind);
	CHECK(seen->flight.from >= begun && seen->flight.from >= trigger - before);
	CHECK_EQUAL(seen->flight.to, trigger + after);
	CHECK(seen->samples > 0);
	CHECK(seen->first >= seen->flight.from && seen->last <= seen->flight.to);
	CHECK_EQUAL(seen->flight.missed, 0);
}

TEST(flight_recorder, each_signal_writes_a_file_of_its_window)
{
	uint64_t begun = clock_ns(CLOCK_MONOTONIC_RAW);
	struct seen first, second;
	struct setting setting;
	char path[128];

	GUEST_REQUIRED();
	/*
	 * Long enough for a busy machine to run the guest in it, and shorter than the guest runs.
	 */
	start(&setting, "--flight 1s");
	sleep(1);
	CHECK(access(setting.path, F_OK) < 0);
	signal_and_wait(&setting, "");
	signal_and_wait(&setting, ".1");
	see(setting.path, &first);
	check_window(&first, begun, 1000000000, 0, "SIGUSR2");
	CHECK_EQUAL(first.flight.from, first.flight.triggers[0].time - 1000000000);
	snprintf(path, sizeof(path), "%s.1", setting.path);
	see(path, &second);
	check_window(&second, begun, 1000000000, 0, "SIGUSR2");
	CHECK(second.flight.to > first.flight.to);
	stop(&setting);
	CHECK(strstr(setting.program.text, "2 flight recordings in"));
}

TEST(flight_recorder, a_size_limits_the_recording)
{
	struct setting setting;
	struct seen seen;

	GUEST_REQUIRED();
	start(&setting, "--flight 128K --cpus 2");
	signal_and_wait(&setting, "");
	see(setting.path, &seen);
	REQUIRE_EQUAL(seen.flight.count, 1);
	CHECK_EQUAL(seen.flight.from, 0);
	CHECK(seen.samples > 0);
	stop(&setting);
}

/* Runs kvmscope dump of the same build. EXPECTED is its exit status. */
static void dump(const struct setting *setting, struct program *program, const char *options,
		 int expected)
{
	char arguments[256];

	snprintf(arguments, sizeof(arguments), "dump --socket %s %s", setting->socket, options);
	program_run(program, arguments);
	if (program->status != expected)
		FAIL_TEST("kvmscope %s: exit status %d, expected %d: %s", arguments,
			  program->status, expected, program->text);
}

TEST(flight_recorder, dump_names_the_file_when_it_is_complete)
{
	uint64_t begun = clock_ns(CLOCK_MONOTONIC_RAW);
	struct setting setting;
	struct program program;
	char expected[128];
	struct seen seen;

	GUEST_REQUIRED();
	start(&setting, "--flight 10s");
	dump(&setting, &program, "--after 100ms", 0);
	snprintf(expected, sizeof(expected), "%s\n", setting.path);
	CHECK_STRING(program.text, expected);
	see(setting.path, &seen);
	check_window(&seen, begun, 10000000000, 100000000, "kvmscope dump");
	stop(&setting);
}

/* A relative name is relative to the user's directory, not the run's. */
TEST(flight_recorder, dump_writes_the_requested_file)
{
	char here[256], expected[160];
	struct setting setting;
	struct program program;

	GUEST_REQUIRED();
	start(&setting, "--flight 10s");
	REQUIRE(getcwd(here, sizeof(here)) && !chdir(setting.directory));
	dump(&setting, &program, "-o mine --json", 0);
	CHECK_EQUAL(chdir(here), 0);
	snprintf(expected, sizeof(expected), "\"file\": \"%s/mine\"", setting.directory);
	CHECK(strstr(program.text, expected));
	CHECK(strstr(program.text, "\"complete\": true"));
	snprintf(expected, sizeof(expected), "%s/mine", setting.directory);
	CHECK(!access(expected, F_OK) && access(setting.path, F_OK) < 0);
	stop(&setting);
}

TEST(flight_recorder, dump_reports_why_it_fails)
{
	struct setting setting;
	struct program program;

	GUEST_REQUIRED();
	start(&setting, "--flight 10s");
	dump(&setting, &program, "-o /nonexistent/x", 1);
	CHECK(strstr(program.text, "/nonexistent/x"));
	dump(&setting, &program, "-o /dev/null", 1);
	CHECK(strstr(program.text, "can be written to /dev/null: it is no regular file"));
	dump(&setting, &program, "-o /proc/self/fd/1", 1);
	CHECK(strstr(program.text, "it is no regular file"));
	stop(&setting); /* with exit status 0: it was not the run's fault */
	start(&setting, "");
	dump(&setting, &program, "", 1);
	CHECK(strstr(program.text, "start it with --flight"));
	kill(setting.program.pid, SIGUSR2);
	CHECK(program_wait_for(&setting.program, "this run has none"));
	stop(&setting);
}

/*
 * The guest may end before the time after a trigger has passed; its recording is most important
 * then.
 */
TEST(flight_recorder, a_waiting_dump_gets_its_file_when_the_guest_ends)
{
	json_t *arguments, *asked = NULL, *result = NULL;
	struct setting setting;
	int run, error;

	GUEST_REQUIRED();
	start(&setting, "--flight 10s");
	run = control_connect(setting.socket);
	REQUIRE(run >= 0);
	arguments = json_pack("{s:i}", "after", 1000);
	REQUIRE_EQUAL(control_call(run, "dump", arguments, &asked), 0);
	json_decref(arguments);
	kill(setting.program.pid, SIGTERM);
	while (!(error = control_call(run, "dump-result", asked, &result)) &&
	       !json_is_true(json_object_get(result, "complete")))
		json_decref(result);
	REQUIRE_EQUAL(error, 0);
	CHECK_STRING(json_string_value(json_object_get(result, "file")), setting.path);
	json_decref(result);
	json_decref(asked);
	close(run);
	stop(&setting);
}

static void check_end(const char *name, int status, const char *kind)
{
	char path[64], arguments[256];
	struct program program;
	struct seen seen;

	snprintf(path, sizeof(path), "build/test-flight-%d.data", getpid());
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE
		 " --mem 64M --timeout 250 --no-buildid-cache --flight 10s "
		 "-o %s --append program=%s",
		 path, name);
	unlink(path);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, status);
	if (!kind) {
		CHECK(access(path, F_OK) < 0);
		CHECK(strstr(program.text, "nothing triggered one"));
		return;
	}
	see(path, &seen);
	REQUIRE_EQUAL(seen.flight.count, 1);
	CHECK_STRING(seen.flight.triggers[0].kind, kind);
	CHECK_EQUAL(!strncmp(seen.flight.triggers[0].detail, "rip ", 4),
		    !strcmp(kind, "triple fault"));
	CHECK(!strchr(seen.flight.triggers[0].detail, '\n'));
	unlink(path);
}

TEST(flight_recorder, a_guest_that_ends_leaves_a_file)
{
	GUEST_REQUIRED();
	check_end("crash", 3, "triple fault");
	check_end("reset", 0, "guest reset");
	check_end("hello_exit=7", 7, NULL);
}

TEST(flight_recorder, wrong_usage_reports_what_is_right)
{
	program_refuses("run --kernel x --flight 30",
			"a time like 30s or 5min, or a size like 64M");
	program_refuses("run --kernel x --flight 0s", "it must be more than 0");
	program_refuses("run --kernel x --cpus 4 --flight 128K", "at least 256K");
	program_refuses("run --kernel x -F 10000 --flight 10h", "do not fit a ring");
	program_refuses("run --kernel x --flight 30s --no-profile", "excludes --no-profile");
	program_refuses("run --kernel x --flight 30s -o -", "-o - is none");
	program_refuses("run --kernel x --after 5s", "give --flight, too");
	program_refuses("run --kernel x --flight 30s --after 5", "a time like 5s or 500ms");
	program_refuses("dump --after 5", "a time like 5s or 500ms");
}
