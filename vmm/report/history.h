/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of something over time, such as the programs of one process. A guest can cause any
 * number of changes, so each state also has a pointer to a much older one: finding the state at a
 * time takes a number of steps that grows with the logarithm of their number (Myers, "An
 * applicative random-access stack", Information Processing Letters 17). One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_HISTORY_H
#define KVMSCOPE_REPORT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* The first member of a state. */
struct history {
	uint64_t time;   /* from which on it holds; not before that of the older state */
	uint64_t number; /* of older states */
	struct history *older, *jump;
};

/* Adds STATE after *NEWEST (NULL: there is none), which it becomes. */
static inline void history_add(struct history **newest, struct history *state, uint64_t time)
{
	struct history *older = *newest, *far = older ? older->jump : NULL;

	*state = (struct history){
		.time = time, .number = older ? older->number + 1 : 0, .older = older, .jump = older
	};
	/* Two jumps of one length become one. */
	if (far && far->jump && older->number - far->number == far->number - far->jump->number)
		state->jump = far->jump;
	*newest = state;
}

/* The next step from STATE, which has an older one, to the state at TIME. */
static inline struct history *history_step(const struct history *state, uint64_t time)
{
	return state->jump->time > time ? state->jump : state->older;
}

/* The latest state up to TIME, else the first one; NULL: there is none. */
static inline struct history *history_at(struct history *newest, uint64_t time)
{
	struct history *state = newest;

	while (state && state->time > time && state->older)
		state = history_step(state, time);
	return state;
}

#endif
