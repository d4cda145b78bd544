/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/stack_agreement.h"

static void add(struct stack_samples *samples, unsigned int recording, const char *stack,
		size_t count)
{
	while (count--)
		stack_samples_add(samples, recording, stack);
}

static bool is_about(double value, double wanted)
{
	return fabs(value - wanted) < 1e-9;
}

TEST(stack_agreement, of_equal_recordings_is_whole)
{
	struct stack_samples *samples = stack_samples_new();
	struct stack_comparison comparison;

	for (unsigned int recording = 0; recording < 2; recording++) {
		add(samples, recording, "spin;main", 300);
		add(samples, recording, "add;main", 100);
	}
	comparison = stack_samples_compare(samples);
	CHECK_EQUAL(comparison.samples[0], 400);
	CHECK_EQUAL(comparison.stacks, 2);
	CHECK(is_about(comparison.measured.overlap, 1));
	CHECK(is_about(comparison.measured.known[0], 1));
	CHECK(comparison.expected.overlap < 1);
	CHECK(comparison.least.overlap < comparison.expected.overlap);
	stack_samples_free(samples);
}

TEST(stack_agreement, counts_stacks_of_one_recording_only)
{
	struct stack_samples *samples = stack_samples_new();
	struct stack_comparison comparison;

	add(samples, 0, "spin;main", 900);
	add(samples, 0, "spin", 100);
	add(samples, 1, "spin;main", 500);
	comparison = stack_samples_compare(samples);
	CHECK(is_about(comparison.measured.known[0], 0.9));
	CHECK(is_about(comparison.measured.known[1], 1));
	CHECK(is_about(comparison.measured.overlap, 0.9));
	/* By chance the second recording would have some of them. */
	CHECK(comparison.measured.known[0] < comparison.least.known[0]);
	CHECK(comparison.measured.overlap < comparison.least.overlap);
	stack_samples_free(samples);
}

/* Rare stacks are in one recording only, as by chance. */
TEST(stack_agreement, of_rare_stacks_is_as_by_chance)
{
	struct stack_samples *samples = stack_samples_new();
	struct stack_comparison comparison;
	char stack[32];

	add(samples, 0, "spin;main", 1960);
	add(samples, 1, "spin;main", 980);
	for (unsigned int i = 0; i < 60; i++) {
		snprintf(stack, sizeof(stack), "start_%u;main", i);
		add(samples, i % 3 == 2, stack, 1);
	}
	comparison = stack_samples_compare(samples);
	CHECK(is_about(comparison.measured.known[0], 0.98));
	CHECK(fabs(comparison.measured.known[0] - comparison.expected.known[0]) < 1e-3);
	CHECK(comparison.measured.known[0] >= comparison.least.known[0] - 1e-9);
	CHECK(comparison.measured.overlap >= comparison.least.overlap - 1e-9);
	stack_samples_free(samples);
}

static void see_counts(void *context, const size_t counts[2], const char *stack)
{
	char *output = context;

	snprintf(output + strlen(output), 64 - strlen(output), "%zu %zu %s, ", counts[0], counts[1],
		 stack);
}

TEST(stack_agreement, reports_how_often_each_recording_has_a_stack)
{
	struct stack_samples *samples = stack_samples_new();
	char output[64] = "";

	add(samples, 1, "c", 2);
	add(samples, 0, "b", 1);
	add(samples, 1, "b", 1);
	add(samples, 0, "a", 3);
	stack_samples_compare(samples);
	stack_samples_each(samples, see_counts, output);
	CHECK_STRING(output, "3 0 a, 1 1 b, 0 2 c, ");
	stack_samples_free(samples);
}
