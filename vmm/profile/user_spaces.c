/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/user_spaces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

/* Ids are given one after the other: the low bits tell those that live together apart. */
#define PLACES     8192u
#define PIECES_MAX 128u

/* What is left of a mapping where no other one has come over it. */
struct piece {
	uint64_t start, end;
	struct sample_mapping mapping; /* as it was told */
};

struct space {
	uint32_t pid;
	uint32_t count;
	uint64_t latest;                 /* ns: when it was last told of */
	struct piece pieces[PIECES_MAX]; /* by address */
};

struct user_spaces {
	struct space *places[PLACES]; /* owned */
};

struct user_spaces *user_spaces_new(void)
{
	return calloc(1, sizeof(struct user_spaces));
}

void user_spaces_free(struct user_spaces *spaces)
{
	for (uint32_t i = 0; spaces && i < PLACES; i++)
		free(spaces->places[i]);
	free(spaces);
}

/* The first piece that ends behind ADDRESS; COUNT if there is none. */
static uint32_t find(const struct space *space, uint64_t address)
{
	uint32_t i = 0;

	while (i < space->count && space->pieces[i].end <= address)
		i++;
	return i;
}

static int forget(struct space *space, uint64_t time, const struct user_spaces_teller *teller)
{
	uint32_t count = space->count;

	space->count = 0;
	if (!count)
		return 0;
	space->latest = time;
	return teller->unmap(teller->context, space->pid, time, space->pieces[0].start,
			     space->pieces[count - 1].end);
}

/* The space of the process of SAMPLE, made if it is WANTED; else *SPACE may be NULL. */
static int find_space(struct user_spaces *spaces, const struct sample *sample, bool wanted,
		      const struct user_spaces_teller *teller, struct space **space)
{
	struct space **place = &spaces->places[sample->pid % PLACES];
	int error;

	*space = *place && (*place)->pid == sample->pid ? *place : NULL;
	if (*space || !wanted)
		return 0;
	if (!*place)
		*place = calloc(1, sizeof(**place));
	if (!*place)
		return error_set(-ENOMEM, "no memory for what the guest's processes have mapped");
	error = forget(*place, sample->time, teller);
	if (error)
		return error;
	(*place)->pid = sample->pid;
	*space = *place;
	return 0;
}

static void remove_piece(struct space *space, uint32_t index)
{
	space->count--;
	memmove(&space->pieces[index], &space->pieces[index + 1],
		(space->count - index) * sizeof(space->pieces[0]));
}

static void insert_piece(struct space *space, uint32_t index, const struct piece *piece)
{
	memmove(&space->pieces[index + 1], &space->pieces[index],
		(space->count - index) * sizeof(space->pieces[0]));
	space->pieces[index] = *piece;
	space->count++;
}

/* PIECE, at INDEX, has a part in [start, end): what it has before and behind that stays. */
static uint32_t cut_piece(struct space *space, uint32_t index, uint64_t start, uint64_t end)
{
	struct piece before = space->pieces[index], behind = before;

	before.end = start;
	behind.start = end;
	remove_piece(space, index);
	if (before.start < start)
		insert_piece(space, index++, &before);
	if (behind.end > end)
		insert_piece(space, index++, &behind);
	return index;
}

/* What was in [start, end) is not there any more; there is room for one piece. */
static void cut(struct space *space, uint64_t start, uint64_t end)
{
	uint32_t i = find(space, start);

	while (i < space->count && space->pieces[i].start < end)
		i = cut_piece(space, i, start, end);
}

static bool is_told(const struct space *space, const struct sample_mapping *mapping)
{
	const struct piece *piece = &space->pieces[find(space, mapping->start)];

	return piece < space->pieces + space->count && piece->start == mapping->start &&
	       piece->end == mapping->end && !memcmp(&piece->mapping, mapping, sizeof(*mapping));
}

static int tell(struct space *space, uint64_t time, const struct sample_mapping *mapping,
		const struct user_spaces_teller *teller)
{
	struct piece piece = { mapping->start, mapping->end, *mapping };
	int error = 0;

	if (is_told(space, mapping))
		return 0;
	if (space->count + 2 > PIECES_MAX)
		error = forget(space, time, teller);
	if (error)
		return error;
	cut(space, mapping->start, mapping->end);
	insert_piece(space, find(space, mapping->start), &piece);
	space->latest = time;
	return teller->map(teller->context, space->pid, time, mapping);
}

static bool covers(const struct sample_mapping *mapping, uint64_t address)
{
	return address - mapping->start < mapping->end - mapping->start;
}

/* The mapping of ADDRESS that SAMPLE tells, if it can be told. */
static bool is_sure(const struct sample *sample, uint64_t address, const struct user_spaces_teller *teller)
{
	const struct sample_mapping *mappings = sample_mappings((struct sample *)(uintptr_t)sample);

	for (uint16_t i = 0; i < sample->mappings; i++)
		if (covers(&mappings[i], address))
			return teller->is_named(teller->context, &mappings[i]);
	return false;
}

static int untell(struct space *space, uint64_t time, uint64_t address,
		  const struct user_spaces_teller *teller)
{
	uint32_t i = find(space, address);
	struct piece piece;

	if (i == space->count || space->pieces[i].start > address)
		return 0;
	piece = space->pieces[i];
	remove_piece(space, i);
	space->latest = time;
	return teller->unmap(teller->context, space->pid, time, piece.start, piece.end);
}

static int tell_mappings(struct space *space, const struct sample *sample,
			 const struct user_spaces_teller *teller)
{
	const struct sample_mapping *mappings = sample_mappings((struct sample *)(uintptr_t)sample);
	int error = 0;

	for (uint16_t i = 0; i < sample->mappings && !error; i++)
		if (teller->is_named(teller->context, &mappings[i]))
			error = tell(space, sample->time, &mappings[i], teller);
	return error;
}

static int untell_others(struct space *space, const struct sample *sample,
			 const struct user_spaces_teller *teller)
{
	const uint64_t *user = sample->callchain + sample->kernel_depth;
	int error = 0;

	for (uint16_t i = 0; i < sample->user_depth && !error; i++)
		if (!is_sure(sample, user[i], teller))
			error = untell(space, sample->time, user[i], teller);
	/* One without a callchain is at its RIP. */
	if (!error && sample->cpl && !is_sure(sample, sample->rip, teller))
		error = untell(space, sample->time, sample->rip, teller);
	return error;
}

int user_spaces_sample(struct user_spaces *spaces, const struct sample *sample,
		       const struct user_spaces_teller *teller, bool *late)
{
	const struct space *place = spaces->places[sample->pid % PLACES];
	struct space *space;
	int error;

	*late = false;
	if (sample->pid == SAMPLE_TASK_UNKNOWN || !sample->pid)
		return 0;
	/* Also where the place is another process's: what was told of that is later, and stays so. */
	*late = place && sample->time < place->latest;
	if (*late)
		return 0;
	error = find_space(spaces, sample, sample->mappings, teller, &space);
	if (error || !space)
		return error;
	error = tell_mappings(space, sample, teller);
	return error ? error : untell_others(space, sample, teller);
}

int user_spaces_end(struct user_spaces *spaces, uint64_t time, const struct user_spaces_teller *teller)
{
	int error = 0;

	for (uint32_t i = 0; i < PLACES && !error; i++)
		if (spaces->places[i])
			error = forget(spaces->places[i], time, teller);
	return error;
}
