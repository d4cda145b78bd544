/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far two recordings of the same work agree on its stacks, and how far two would that differ by
 * chance alone: all samples of both are dealt anew into two recordings as large as they are, a
 * hundred times. One thread at a time.
 */
#ifndef KVMSCOPE_TESTS_UNIT_STACK_AGREEMENT_H
#define KVMSCOPE_TESTS_UNIT_STACK_AGREEMENT_H

#include <stddef.h>

#define STACK_DEALS 100

struct stack_samples;

struct stack_agreement {
	double known[2]; /* the part of each recording's samples whose stack the other one has, too
			  */
	double overlap;  /* of both distributions: the sum over stacks of the smaller share */
};

struct stack_comparison {
	size_t samples[2], stacks;
	struct stack_agreement measured;
	struct stack_agreement dealt[STACK_DEALS]; /* of those dealt anew */
	struct stack_agreement expected;           /* of these: the average */
	struct stack_agreement least;              /* and the least of each */
};

/* Ends the program where there is no memory. */
struct stack_samples *stack_samples_new(void);
void stack_samples_free(struct stack_samples *samples);

/* A sample of recording 0 or 1, whose STACK is copied. */
void stack_samples_add(struct stack_samples *samples, unsigned int recording, const char *stack);

/* Each recording has at least one. The same samples give the same result. */
struct stack_comparison stack_samples_compare(struct stack_samples *samples);

/* Makes EXPECTED and LEAST of what was DEALT. */
void stack_comparison_sum_up(struct stack_comparison *comparison);

/* Tells SEE of each stack, by their names, and how often either recording has it. After a
 * comparison. */
void stack_samples_each(const struct stack_samples *samples,
			void (*see)(void *context, const size_t counts[2], const char *stack),
			void *context);

#endif
