/* SPDX-License-Identifier: Apache-2.0 */
/* The whole program with a guest of ours on this machine's KVM; Debian's perf reads the result. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/perf_home.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"

#define IMAGE "build/guests/guest.elf"
/* Bytes, with some margin, of a file without samples: events may still be added before its data. */
#define EMPTY  10240
#define SHARES "--append program=shares_rounds=1000000_chunk=1000000"

/* The share of SYMBOL in perf, %; -1: not found. */
static double share_of(const char *report, const char *symbol)
{
	const char *found = strstr(report, symbol), *line = found;

	while (line && line > report && line[-1] != '\n')
		line--;
	return line ? atof(line) : -1;
}

#define NEEDS()                                                                                    \
	do {                                                                                       \
		GUEST_REQUIRED();                                                                  \
		NEED_PERF;                                                                         \
	} while (0)

static char *user_report(const char *home)
{
	return perf_output(
		"perf report -i %s/perf.data --stdio --no-children -g none 2>&1 | grep '\\[\\.\\]'",
		home);
}

TEST(recording, perf_symbolizes_the_functions_of_a_program)
{
	struct program program;
	char home[64];
	char arguments[512], *report;

	NEEDS();
	perf_home_enter(home);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " IMAGE " --vmlinux " IMAGE
		 " --mem 64M -F 1000 --duration 2 --console none -o %s/perf.data " SHARES,
		 home);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	report = user_report(home);
	CHECK(share_of(report, "share_sixty") > 40);
	CHECK(share_of(report, "share_thirty") > 15);
	CHECK(share_of(report, "share_ten") > 1);
	CHECK(strstr(report, "guest.elf"));
	free(report);
	report = perf_output("perf annotate --stdio -i %s/perf.data build_page_tables 2>/dev/null",
			     home);
	CHECK(strstr(report, "ret"));
	free(report);
	perf_home_leave(home);
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

/* Killed while it records: symbols and samples are available up to the last block. */
static void check_killed(const char *options)
{
	struct program program;
	char home[64];
	char arguments[512], path[128], *report;

	perf_home_enter(home);
	snprintf(path, sizeof(path), "%s/perf.data", home);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " IMAGE " --vmlinux " IMAGE
		 " --mem 64M -F 2000 %s --console none -o %s " SHARES,
		 options, path);
	program_start(&program, arguments);
	wait_for_size(path, EMPTY + 8000);
	kill(program.pid, SIGKILL);
	program_wait(&program);
	CHECK_EQUAL(program.status, 128 + SIGKILL);
	report = user_report(home);
	CHECK(share_of(report, "share_sixty") > 30);
	free(report);
	perf_home_leave(home);
}

TEST(recording, killed_recording_is_readable_and_symbolized)
{
	NEEDS();
	check_killed("--ring-size 512K");
	check_killed("-z");
}

TEST(recording, can_be_written_to_a_pipe)
{
	char home[64];
	char *report;

	NEEDS();
	perf_home_enter(home);
	report = perf_output(
		"build/kvmscope run -q --kernel " IMAGE " --vmlinux " IMAGE
		" --mem 64M -F 1000 --duration 2 --console none -o - --append "
		"'program=shares rounds=1000000 chunk=1000000' </dev/null | "
		"perf report -i - --stdio --no-children -g none 2>/dev/null | grep '\\[\\.\\]'");
	CHECK(share_of(report, "share_sixty") > 40);
	free(report);
	perf_home_leave(home);
}
