/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What benches share. A bench is one program that measures one thing and
 * prints one JSON object a line, all with the same keys; tests/bench/run
 * gathers them. Where there is something to compare with, it is measured in
 * the same run: machines differ, ratios less so.
 */
#ifndef KVMSCOPE_TESTS_BENCH_H
#define KVMSCOPE_TESTS_BENCH_H

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

/* A figure with nothing to compare it with. Strings must need no escapes in JSON. */
static inline void bench_print(const char *what, double value, const char *unit)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"}\n", what, value, unit);
	fflush(stdout);
}

/* A figure, and the same of BASELINE in the same run. */
static inline void bench_print_beside(const char *what, double value, const char *unit, const char *baseline,
				      double baseline_value)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": \"%s\", "
	       "\"baseline_value\": %.4g, \"ratio\": %.4g}\n",
	       what, value, unit, baseline, baseline_value, value / baseline_value);
	fflush(stdout);
}

/* The same; RATIOS are those of COUNT runs, of which the smallest and the largest are told. Sorts them. */
static inline void bench_print_ratio(const char *what, double value, const char *unit, const char *baseline,
				     double baseline_value, double *ratios, size_t count)
{
	double median = bench_median(ratios, count);

	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"baseline\": \"%s\", "
	       "\"baseline_value\": %.4g, \"ratio\": %.4g, \"ratio_min\": %.4g, \"ratio_max\": %.4g}\n",
	       what, value, unit, baseline, baseline_value, median, ratios[0], ratios[count - 1]);
	fflush(stdout);
}

/* A figure that is to be below BOUND. */
static inline void bench_print_bound(const char *what, double value, const char *unit, double bound)
{
	printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"bound\": %.4g, \"kept\": %s}\n", what,
	       value, unit, bound, value < bound ? "true" : "false");
	fflush(stdout);
}

/* What can not be measured here, and why. */
static inline void bench_skip(const char *what, const char *reason)
{
	printf("{\"what\": \"%s\", \"skipped\": \"%s\"}\n", what, reason);
	fflush(stdout);
}

#endif
