/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by all benches. A bench is a program that measures one thing and prints one JSON object
 * per line, always with the same keys; tests/bench/run collects them. A baseline is measured in the
 * same run whenever there is one, because ratios vary less between machines than absolute values. A
 * figure that the documentation claims has a bound, and the program fails if a bound is exceeded.
 */
#ifndef KVMSCOPE_TESTS_BENCH_BENCH_H
#define KVMSCOPE_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

/* ns of CLOCK. */
static inline uint64_t bench_time(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/*
 * The number of runs, rounds or items: FULL, or REDUCED if KVMSCOPE_BENCH_SHORT is in the
 * environment. A short run only shows that the bench works; its figures mean nothing.
 */
static inline int bench_size(int full, int reduced)
{
	return getenv("KVMSCOPE_BENCH_SHORT") ? reduced : full;
}

/*
 * Runs another bench in the rig, with the same size; errors go to build/bench/LOG.log. Returns its
 * exit status, for main().
 */
static inline int bench_in_rig(const char *bench, const char *log)
{
	char command[512];
	int status;

	snprintf(
		command, sizeof(command),
		"tests/rig/rig --timeout 220 -- env "
		"${KVMSCOPE_BENCH_SHORT+KVMSCOPE_BENCH_SHORT=1} build/bench/%s 2> build/bench/%s.log",
		bench, log);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static inline int bench_compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* The median of COUNT (at least 1) values; sorts them. */
static inline double bench_median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), bench_compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The claimed limit of a figure; all zero: no claim. */
struct bench_bound {
	enum { BENCH_ANY, BENCH_MOST, BENCH_LEAST } kind;
	double value; /* at most, or at least; in the unit of the figure */
};

/* The number of figures of this program that exceeded their bounds. */
static unsigned int bench_exceeded;

/* The exit status for main(): 0, or BENCH_BROKEN if a bound was exceeded. */
#define BENCH_BROKEN 3

static inline int bench_status(void)
{
	return bench_exceeded ? BENCH_BROKEN : 0;
}

/* Prints the part of a line that says whether VALUE is within BOUND, and ends the line. */
static inline void bench_print_end(double value, struct bench_bound bound)
{
	bool kept = bound.kind == BENCH_MOST ? value <= bound.value : value >= bound.value;

	if (bound.kind)
		printf(", \"%s\": %.4g, \"kept\": %s", bound.kind == BENCH_MOST ? "most" : "least",
		       bound.value, kept ? "true" : "false");
	if (bound.kind && !kept)
		bench_exceeded++;
	printf("}\n");
	fflush(stdout);
}

/* Prints a figure with a bound. Strings must not need escapes in JSON. */
static inline void bench_print_bound(const char *what, double value, const char *unit,
				     struct bench_bound bound)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"", what, value, unit);
	bench_print_end(value, bound);
}

/* Prints a figure without a bound. */
static inline void bench_print(const char *what, double value, const char *unit)
{
	bench_print_bound(what, value, unit, (struct bench_bound){ 0 });
}

/* Prints a figure with a bound, and the same figure of BASELINE from the same run. */
static inline void bench_print_relative_bound(const char *what, double value, const char *unit,
					      const char *baseline, double baseline_value,
					      struct bench_bound bound)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": \"%s\", "
	       "\"baseline_value\": %.4g, \"ratio\": %.4g",
	       what, value, unit, baseline, baseline_value, value / baseline_value);
	bench_print_end(value, bound);
}

static inline void bench_print_relative(const char *what, double value, const char *unit,
					const char *baseline, double baseline_value)
{
	bench_print_relative_bound(what, value, unit, baseline, baseline_value,
				   (struct bench_bound){ 0 });
}

/*
 * Like bench_print_relative_bound(), with the RATIOS of COUNT runs, of which the smallest and the
 * largest are printed. Sorts RATIOS. BOUND applies to their median, because a single run is noisy.
 */
static inline void bench_print_ratio_bound(const char *what, double value, const char *unit,
					   const char *baseline, double baseline_value,
					   double *ratios, size_t count, struct bench_bound bound)
{
	double median = bench_median(ratios, count);

	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": \"%s\", "
	       "\"baseline_value\": %.4g, \"ratio\": %.4g, \"ratio_min\": %.4g, \"ratio_max\": %.4g",
	       what, value, unit, baseline, baseline_value, median, ratios[0], ratios[count - 1]);
	bench_print_end(median, bound);
}

static inline void bench_print_ratio(const char *what, double value, const char *unit,
				     const char *baseline, double baseline_value, double *ratios,
				     size_t count)
{
	bench_print_ratio_bound(what, value, unit, baseline, baseline_value, ratios, count,
				(struct bench_bound){ 0 });
}

/* Reports that WHAT cannot be measured on this machine, and why. */
static inline void bench_skip(const char *what, const char *reason)
{
	printf("{\"what\": \"%s\", \"skipped\": \"%s\"}\n", what, reason);
	fflush(stdout);
}

/* Reports that a measurement failed, and why. Counts as an exceeded bound. */
static inline void bench_fail(const char *what, const char *reason)
{
	printf("{\"what\": \"%s\", \"failed\": \"%s\"}\n", what, reason);
	fflush(stdout);
	bench_exceeded++;
}

#endif
