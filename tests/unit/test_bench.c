/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bench fails if one of its figures exceeds its bound, and tests/bench/run fails with it. That
 * script runs in its own directory, in which "making" benches does nothing and one bench exists.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/unit/shim/test.h"

struct directory {
	char path[64], file[96]; /* file with the bench's output */
};

static void make_directory(struct directory *directory)
{
	char command[256];

	*directory = (struct directory){ .path = "/tmp/kvmscope-bench-XXXXXX" };
	REQUIRE(mkdtemp(directory->path) != NULL);
	snprintf(directory->file, sizeof(directory->file), "%s/figures", directory->path);
	snprintf(
		command, sizeof(command),
		"cd %s && mkdir -p tests/bench build/bench && cp \"$OLDPWD\"/tests/bench/run tests/bench && "
		"printf '%%%%:;@:\\n' > Makefile",
		directory->path);
	REQUIRE(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

static void remove_directory(const struct directory *directory)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", directory->path);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

/* Forks a process that prints to the file; returns 0 in the child. */
static pid_t start_bench(const struct directory *directory)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child && !freopen(directory->file, "w", stdout))
		_exit(1);
	return child;
}

static int status_of(pid_t child)
{
	int status = -1;

	CHECK_EQUAL(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

static int fail_to_measure(const struct directory *directory)
{
	pid_t child = start_bench(directory);

	if (!child) {
		bench_fail("a ratio", "too few samples");
		_exit(bench_status());
	}
	return status_of(child);
}

/*
 * Acts as a bench with figures of TIME ns and RATE M/s, and with RATIOS. Returns its exit status.
 */
static int print_figures(const struct directory *directory, double time, double rate,
			 const double ratios[2])
{
	double sorted[2] = { ratios[0], ratios[1] };
	pid_t child = start_bench(directory);

	if (!child) {
		bench_print("nothing is claimed of it", 1e9, "ns");
		bench_print_bound("a time", time, "ns", (struct bench_bound){ BENCH_MOST, 200 });
		bench_print_relative_bound("a rate", rate, "M/s", "others", 1,
					   (struct bench_bound){ BENCH_LEAST, 5 });
		bench_print_ratio_bound("a ratio", 1, "us", "others", 1, sorted, 2,
					(struct bench_bound){ BENCH_MOST, 1 });
		_exit(bench_status());
	}
	return status_of(child);
}

/*
 * Runs tests/bench/run on a bench that printed its figures and ended with ENDED. Returns its exit
 * status.
 */
static int run_bench(const struct directory *directory, int ended, char output[4096])
{
	char command[512];
	size_t size;
	FILE *pipe;

	snprintf(command, sizeof(command),
		 "cd %s && printf '#!/bin/sh\\ncat figures; exit %d\\n' > build/bench/bench_one && "
		 "chmod 755 build/bench/bench_one && tests/bench/run one 2>&1",
		 directory->path, ended);
	pipe = popen(command, "re");
	CHECK(pipe != NULL);
	size = fread(output, 1, 4095, pipe);
	output[size] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

/* Checks the figures, and that tests/bench/run prints TEXT about them. */
static void check(double time, double rate, const double ratios[2], bool kept, const char *text)
{
	struct directory directory;
	char output[4096];
	int status = -1;

	make_directory(&directory);
	status = print_figures(&directory, time, rate, ratios);
	CHECK_EQUAL(status, kept ? 0 : BENCH_BROKEN);
	CHECK_EQUAL(run_bench(&directory, status, output), !kept);
	if (!strstr(output, text) || kept != !strstr(output, "NOT KEPT"))
		FAIL_TEST("no \"%s\" in:\n%s", text, output);
	remove_directory(&directory);
}

TEST(bench, fails_if_a_bound_is_exceeded)
{
	check(200, 5, (double[]){ 1.1, 0.9 }, true, "at least 5\n");
	check(201, 5, (double[]){ 1.1, 0.9 }, false, "at most 200: NOT KEPT\n");
	check(200, 4.9, (double[]){ 1.1, 0.9 }, false, "at least 5: NOT KEPT\n");
	check(200, 5, (double[]){ 1.2, 0.9 }, false, "bench_one: a bound is not kept\n");
}

TEST(bench, fails_if_a_measurable_figure_is_missing)
{
	struct directory directory;
	char output[4096];
	int status;

	make_directory(&directory);
	status = fail_to_measure(&directory);
	CHECK_EQUAL(status, BENCH_BROKEN);
	CHECK_EQUAL(run_bench(&directory, status, output), 1);
	CHECK(strstr(output, "FAILED: too few samples\n"));
	remove_directory(&directory);
}

TEST(bench, fails_if_a_bench_does_not_run)
{
	struct directory directory;
	char output[4096];

	make_directory(&directory);
	CHECK_EQUAL(print_figures(&directory, 1, 9, (double[]){ 1, 1 }), 0);
	CHECK_EQUAL(run_bench(&directory, 1, output), 1);
	CHECK(strstr(output, "bench_one failed (status 1)\n"));
	remove_directory(&directory);
}
