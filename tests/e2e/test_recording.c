// SPDX-License-Identifier: Apache-2.0
/* The whole program on a guest of our own, on this machine's KVM, and Debian's perf on what it leaves. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"

#define IMAGE  "build/guests/guest.elf"
#define SHARES "--append program=shares_rounds=1000000_chunk=1000000"

struct place {
	char home[64];
	char *former_home;
};

static void enter(struct place *place)
{
	place->former_home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
	strcpy(place->home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(place->home))
		abort();
	setenv("HOME", place->home, 1);
}

static void leave(struct place *place)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", place->home);
	CHECK_EQUAL(system(command), 0);
	if (place->former_home)
		setenv("HOME", place->former_home, 1);
	free(place->former_home);
}

__attribute__((format(printf, 1, 2))) static char *output_of(const char *format, ...)
{
	char command[1024], *output = calloc(1, 1 << 20);
	va_list arguments;
	FILE *pipe;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	pipe = popen(command, "re");
	if (pipe) {
		output[fread(output, 1, (1 << 20) - 1, pipe)] = '\0';
		pclose(pipe);
	}
	return output;
}

/* The share in % that perf gives SYMBOL; -1 if it is not there. */
static double share_of(const char *report, const char *symbol)
{
	const char *found = strstr(report, symbol), *line = found;

	while (line && line > report && line[-1] != '\n')
		line--;
	return line ? atof(line) : -1;
}

#define NEEDS()                                                                                              \
	do {                                                                                                 \
		if (!guest_run_possible())                                                                   \
			SKIP("/dev/kvm can not be opened");                                                  \
		if (system("perf --version >/dev/null 2>&1"))                                                \
			SKIP("perf (package linux-perf) does not run here");                                 \
	} while (0)

static char *user_report(const struct place *place)
{
	return output_of("perf report -i %s/perf.data --stdio --no-children -g none 2>&1 | grep '\\[\\.\\]'",
			 place->home);
}

TEST(recording, perf_names_the_functions_of_a_program)
{
	struct program program;
	struct place place;
	char arguments[512], *report;

	NEEDS();
	enter(&place);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " IMAGE " --vmlinux " IMAGE
		 " --mem 64M -F 1000 --duration 2 --console none -o %s/perf.data " SHARES,
		 place.home);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	report = user_report(&place);
	CHECK(share_of(report, "share_sixty") > 40);
	CHECK(share_of(report, "share_thirty") > 15);
	CHECK(share_of(report, "share_ten") > 1);
	CHECK(strstr(report, "guest.elf"));
	free(report);
	report = output_of("perf annotate --stdio -i %s/perf.data build_page_tables 2>/dev/null", place.home);
	CHECK(strstr(report, "ret"));
	free(report);
	leave(&place);
}

static void wait_for_size(const char *path, off_t size)
{
	struct stat status;

	for (unsigned int i = 0; i < 3000; i++) {
		if (!stat(path, &status) && status.st_size > size)
			return;
		usleep(10000);
	}
	FAIL_TEST("%s does not grow", path);
}

/* Killed while it records: names and samples are there up to the last block. */
static void check_killed(const char *options)
{
	struct program program;
	struct place place;
	char arguments[512], path[128], *report;

	enter(&place);
	snprintf(path, sizeof(path), "%s/perf.data", place.home);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " IMAGE " --vmlinux " IMAGE
		 " --mem 64M -F 2000 %s --console none -o %s " SHARES,
		 options, path);
	program_start(&program, arguments);
	wait_for_size(path, 8000);
	kill(program.pid, SIGKILL);
	program_wait(&program);
	CHECK_EQUAL(program.status, 128 + SIGKILL);
	report = user_report(&place);
	CHECK(share_of(report, "share_sixty") > 30);
	free(report);
	leave(&place);
}

TEST(recording, killed_it_is_readable_and_named)
{
	NEEDS();
	check_killed("--ring-size 512K");
	check_killed("-z");
}

TEST(recording, goes_down_a_pipe)
{
	struct place place;
	char *report;

	NEEDS();
	enter(&place);
	report = output_of("build/kvmscope run -q --kernel " IMAGE " --vmlinux " IMAGE
			   " --mem 64M -F 1000 --duration 2 --console none -o - --append "
			   "'program=shares rounds=1000000 chunk=1000000' </dev/null | "
			   "perf report -i - --stdio --no-children -g none 2>/dev/null | grep '\\[\\.\\]'");
	CHECK(share_of(report, "share_sixty") > 40);
	free(report);
	leave(&place);
}
