/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What benches share. A bench is one program that measures one thing and
 * prints one JSON object a line, all with the same keys; tests/bench/run
 * gathers them. Where there is something to compare with, it is measured in
 * the same run: machines differ, ratios less so. Where the documentation
 * claims a figure it has a bound, and the program fails if that is not kept.
 */
#ifndef KVMSCOPE_TESTS_BENCH_BENCH_H
#define KVMSCOPE_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ns of CLOCK. */
static inline uint64_t bench_time(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/*
 * The number of runs, rounds or items: FULL, or REDUCED where the environment has
 * KVMSCOPE_BENCH_SHORT. A short run only shows that the bench works; its figures mean nothing.
 */
static inline int bench_size(int full, int reduced)
{
	return getenv("KVMSCOPE_BENCH_SHORT") ? reduced : full;
}

/* The command that runs another bench in the rig, with the same size; errors go to
 * build/bench/LOG.log. */
#define BENCH_IN_RIG(bench, log)                                                                   \
	"tests/rig/rig --timeout 220 -- "                                                          \
	"env ${KVMSCOPE_BENCH_SHORT+KVMSCOPE_BENCH_SHORT=1} build/bench/" bench                    \
	" 2> build/bench/" log ".log"

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

/* What a figure has to be, where it is claimed somewhere; all zero: nothing is. */
struct bench_bound {
	enum { BENCH_ANY, BENCH_MOST, BENCH_LEAST } kind;
	double value; /* that it is to be at most, or at least; in its unit */
};

/* Figures of this program that did not keep their bounds. */
static unsigned int bench_broken;

/* What main() is to return: 0, or BENCH_BROKEN where a bound was not kept. */
#define BENCH_BROKEN 3

static inline int bench_status(void)
{
	return bench_broken ? BENCH_BROKEN : 0;
}

/* The part of a figure's line that says whether VALUE is within BOUND, and its end. */
static inline void bench_print_end(double value, struct bench_bound bound)
{
	bool kept = bound.kind == BENCH_MOST ? value <= bound.value : value >= bound.value;

	if (bound.kind)
		printf(", \"%s\": %.4g, \"kept\": %s", bound.kind == BENCH_MOST ? "most" : "least",
		       bound.value, kept ? "true" : "false");
	if (bound.kind && !kept)
		bench_broken++;
	printf("}\n");
	fflush(stdout);
}

/* A figure that is to be within BOUND. Strings must need no escapes in JSON. */
static inline void bench_print_bound(const char *what, double value, const char *unit,
				     struct bench_bound bound)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"", what, value, unit);
	bench_print_end(value, bound);
}

/* A figure of which nothing is claimed. */
static inline void bench_print(const char *what, double value, const char *unit)
{
	bench_print_bound(what, value, unit, (struct bench_bound){ 0 });
}

/* A figure that is to be within BOUND, and the same of BASELINE in the same run. */
static inline void bench_print_beside_bound(const char *what, double value, const char *unit,
					    const char *baseline, double baseline_value,
					    struct bench_bound bound)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": \"%s\", "
	       "\"baseline_value\": %.4g, \"ratio\": %.4g",
	       what, value, unit, baseline, baseline_value, value / baseline_value);
	bench_print_end(value, bound);
}

static inline void bench_print_beside(const char *what, double value, const char *unit,
				      const char *baseline, double baseline_value)
{
	bench_print_beside_bound(what, value, unit, baseline, baseline_value,
				 (struct bench_bound){ 0 });
}

/*
 * The same; RATIOS are those of COUNT runs, of which the smallest and the largest are told. Sorts
 * them. BOUND is that of their median: one alone may have had bad luck, or good.
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

/* What can not be measured here, and why. */
static inline void bench_skip(const char *what, const char *reason)
{
	printf("{\"what\": \"%s\", \"skipped\": \"%s\"}\n", what, reason);
	fflush(stdout);
}

/* What could be measured here and was not, and why: as a bound that was not kept. */
static inline void bench_fail(const char *what, const char *reason)
{
	printf("{\"what\": \"%s\", \"failed\": \"%s\"}\n", what, reason);
	fflush(stdout);
	bench_broken++;
}

#endif
