/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/stack_agreement.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct stack_sample {
	char *stack;
	unsigned int recording;
	size_t number; /* of the stack, from 0, after sorting */
};

struct stack_samples {
	struct stack_sample *list;
	size_t count, capacity;
};

static void *need(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

struct stack_samples *stack_samples_new(void)
{
	return need(calloc(1, sizeof(struct stack_samples)));
}

void stack_samples_free(struct stack_samples *samples)
{
	if (!samples)
		return;
	for (size_t i = 0; i < samples->count; i++)
		free(samples->list[i].stack);
	free(samples->list);
	free(samples);
}

void stack_samples_add(struct stack_samples *samples, unsigned int recording, const char *stack)
{
	assert(recording < 2);
	if (samples->count == samples->capacity) {
		samples->capacity = samples->capacity ? 2 * samples->capacity : 1024;
		samples->list =
			need(realloc(samples->list, samples->capacity * sizeof(samples->list[0])));
	}
	samples->list[samples->count++] =
		(struct stack_sample){ .stack = need(strdup(stack)), .recording = recording };
}

static int compare_stacks(const void *left, const void *right)
{
	return strcmp(((const struct stack_sample *)left)->stack,
		      ((const struct stack_sample *)right)->stack);
}

/* Returns the number of stacks. */
static size_t number_stacks(struct stack_samples *samples)
{
	size_t number = 0;

	qsort(samples->list, samples->count, sizeof(samples->list[0]), compare_stacks);
	for (size_t i = 0; i < samples->count; i++) {
		number += i && compare_stacks(&samples->list[i - 1], &samples->list[i]);
		samples->list[i].number = number;
	}
	return number + 1;
}

/* COUNTS: for each stack, how often each recording has it. */
static struct stack_agreement agreement_of(size_t (*counts)[2], size_t stacks, const size_t *totals)
{
	struct stack_agreement agreement = { 0 };

	for (size_t i = 0; i < stacks; i++) {
		double shares[2];

		for (int k = 0; k < 2; k++)
			shares[k] = (double)counts[i][k] / (double)totals[k];
		agreement.overlap += fmin(shares[0], shares[1]);
		for (int k = 0; k < 2 && counts[i][0] && counts[i][1]; k++)
			agreement.known[k] += shares[k];
	}
	return agreement;
}

/* xorshift64*; below BOUND, with a bias too small for any test. */
static size_t draw(uint64_t *state, size_t bound)
{
	assert(bound);
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (size_t)((*state * 0x2545f4914f6cdd1dull) >> 11) % bound;
}

/*
 * Moves random samples to the first TOTALS[0] entries of ORDER, which then belong to recording 0.
 */
static void deal(size_t *order, size_t count, const size_t *totals, uint64_t *state)
{
	for (size_t i = 0; i < totals[0]; i++) {
		size_t other = i + draw(state, count - i), number = order[i];

		order[i] = order[other];
		order[other] = number;
	}
}

static void add_deal(struct stack_comparison *comparison, const struct stack_agreement *dealt)
{
	struct stack_agreement *sum = &comparison->expected, *least = &comparison->least;

	for (int k = 0; k < 2; k++) {
		sum->known[k] += dealt->known[k] / STACK_DEALS;
		least->known[k] = fmin(least->known[k], dealt->known[k]);
	}
	sum->overlap += dealt->overlap / STACK_DEALS;
	least->overlap = fmin(least->overlap, dealt->overlap);
}

void stack_comparison_sum_up(struct stack_comparison *comparison)
{
	comparison->expected = (struct stack_agreement){ 0 };
	comparison->least = (struct stack_agreement){ { 1, 1 }, 1 };
	for (size_t i = 0; i < STACK_DEALS; i++)
		add_deal(comparison, &comparison->dealt[i]);
}

static void shuffle(const struct stack_samples *samples, size_t (*counts)[2],
		    struct stack_comparison *comparison)
{
	size_t *order = need(calloc(samples->count, sizeof(*order)));
	uint64_t state = 1;

	for (size_t i = 0; i < samples->count; i++)
		order[i] = samples->list[i].number;
	for (int round = 0; round < STACK_DEALS; round++) {
		deal(order, samples->count, comparison->samples, &state);
		memset(counts, 0, comparison->stacks * sizeof(counts[0]));
		for (size_t i = 0; i < samples->count; i++)
			counts[order[i]][i >= comparison->samples[0]]++;
		comparison->dealt[round] =
			agreement_of(counts, comparison->stacks, comparison->samples);
	}
	free(order);
}

struct stack_comparison stack_samples_compare(struct stack_samples *samples)
{
	struct stack_comparison comparison = { 0 };
	size_t(*counts)[2];

	comparison.stacks = number_stacks(samples);
	counts = need(calloc(comparison.stacks, sizeof(counts[0])));
	for (size_t i = 0; i < samples->count; i++) {
		comparison.samples[samples->list[i].recording]++;
		counts[samples->list[i].number][samples->list[i].recording]++;
	}
	assert(comparison.samples[0] && comparison.samples[1]);
	comparison.measured = agreement_of(counts, comparison.stacks, comparison.samples);
	shuffle(samples, counts, &comparison);
	stack_comparison_sum_up(&comparison);
	free(counts);
	return comparison;
}

void stack_samples_each(const struct stack_samples *samples,
			void (*see)(void *context, const size_t counts[2], const char *stack),
			void *context)
{
	size_t begin, end;

	for (begin = 0; begin < samples->count; begin = end) {
		const struct stack_sample *first = &samples->list[begin];
		size_t counts[2] = { 0 };

		for (end = begin;
		     end < samples->count && samples->list[end].number == first->number; end++)
			counts[samples->list[end].recording]++;
		see(context, counts, first->stack);
	}
}
