/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far two recordings of the same work agree on its stacks, and how far they would differ by
 * chance alone: all samples of both are shuffled into two new recordings of the same sizes, a
 * hundred times. One thread at a time.
 */
#ifndef KVMSCOPE_TESTS_UNIT_STACK_AGREEMENT_H
#define KVMSCOPE_TESTS_UNIT_STACK_AGREEMENT_H

#include <stddef.h>

#define STACK_DEALS 100

struct stack_samples;

struct stack_agreement {
	double known[2]; /* the part of each recording's samples whose stack the other one has,
			  * too */
	double overlap;  /* of both distributions: the sum over stacks of the smaller share */
};

struct stack_comparison {
	size_t samples[2], stacks;
	struct stack_agreement measured;
	struct stack_agreement dealt[STACK_DEALS]; /* of the shuffled ones */
	struct stack_agreement expected;           /* the average of these */
	struct stack_agreement least;              /* and the minimum of each */
};

/* Ends the program without memory. */
struct stack_samples *stack_samples_new(void);
void stack_samples_free(struct stack_samples *samples);

/* A sample of recording 0 or 1. STACK is copied. */
void stack_samples_add(struct stack_samples *samples, unsigned int recording, const char *stack);

/* Each recording has at least one sample. The same samples give the same result. */
struct stack_comparison stack_samples_compare(struct stack_samples *samples);

/* Computes EXPECTED and LEAST from DEALT. */
void stack_comparison_sum_up(struct stack_comparison *comparison);

/*
 * Calls SEE with each stack, sorted by name, and how often either recording has it. After a
 * comparison.
 */
void stack_samples_each(const struct stack_samples *samples,
			void (*see)(void *context, const size_t counts[2], const char *stack),
			void *context);

#endif
