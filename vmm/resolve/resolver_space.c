/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_space.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"

/* vm.max_map_count is 65530; mappings beyond that are refused. */
#define PIECES_MAX 65536

static int reserve(struct resolver_store *store, struct resolver_piece **pieces, size_t *capacity,
		   size_t count)
{
	size_t larger = *capacity ? *capacity : 16;
	struct resolver_piece *grown;

	if (count <= *capacity)
		return 0;
	if (count > PIECES_MAX)
		return -E2BIG;
	while (larger < count)
		larger *= 2;
	grown = resolver_store_resize(store, *pieces, sizeof(*grown), *capacity, larger);
	if (!grown)
		return -ENOMEM;
	*pieces = grown;
	*capacity = larger;
	return 0;
}

/* The first piece that ends after ADDRESS. This runs for each address of each call chain, so the
 * halves are selected by arithmetic: branches would be mispredicted. */
static size_t first_after(const struct resolver_space *space, uint64_t address)
{
	size_t first = 0, count = space->count;

	while (count > 1) {
		size_t half = count / 2;

		first += half * (space->pieces[first + half - 1].end <= address);
		count -= half;
	}
	return first + (count && space->pieces[first].end <= address);
}

/* The part [start, end) of PIECE, with its own hold. */
static struct resolver_piece part(const struct resolver_piece *piece, uint64_t start, uint64_t end)
{
	struct resolver_piece cut = *piece;

	cut.offset += start - piece->start;
	cut.start = start;
	cut.end = end;
	resolver_image_hold(cut.image);
	return cut;
}

/* If there is no room, the piece is dropped: late samples find nothing there. */
static void remember(struct resolver_space *space, struct resolver_store *store,
		     struct resolver_piece piece, const struct resolver_piece *next)
{
	uint64_t until = next->from;

	piece.until = until;
	piece.until_error = next->from_error;
	/* A piece without a duration may have had one, if its times are not exact. */
	if ((piece.from >= until && !piece.from_error && !piece.until_error) ||
	    space->past_count == RESOLVER_PAST_MAX ||
	    reserve(store, &space->past, &space->past_capacity, space->past_count + 1))
		resolver_image_release(store, piece.image);
	else
		space->past[space->past_count++] = piece;
}

/* Pieces that replace others, by address. */
struct change {
	struct resolver_piece *pieces;
	size_t count, capacity;
};

static void put(struct change *change, struct resolver_piece piece)
{
	change->pieces[change->count++] = piece;
}

/* Adds [start, end) of NEW, where nothing is newer, joined with the previous one if possible. */
static void put_new(struct change *change, const struct resolver_piece *new, uint64_t start,
		    uint64_t end)
{
	struct resolver_piece *last = change->count ? &change->pieces[change->count - 1] : NULL;

	if (last && last->end == start && last->from == new->from && last->image == new->image &&
	    last->start >= new->start && last->offset - last->start == new->offset - new->start)
		last->end = end;
	else
		put(change, part(new, start, end));
}

/* OLD, which overlaps NEW, becomes up to three pieces: its rest on both sides, and the newer of the
 * two in between. */
static void overlay(struct resolver_space *space, struct resolver_store *store,
		    struct change *change, const struct resolver_piece *old,
		    const struct resolver_piece *new)
{
	uint64_t start = old->start > new->start ? old->start : new->start;
	uint64_t end = old->end < new->end ? old->end : new->end;

	if (old->from > new->from) {
		remember(space, store, part(new, start, end), old);
		put(change, part(old, old->start, old->end));
		return;
	}
	if (old->start < start)
		put(change, part(old, old->start, start));
	remember(space, store, part(old, start, end), new);
	put_new(change, new, start, end);
	if (old->end > end)
		put(change, part(old, end, old->end));
}

/* Adds what pieces FIRST to END become with NEW over them. */
static void cover(struct resolver_space *space, struct resolver_store *store, struct change *change,
		  size_t first, size_t end, const struct resolver_piece *new)
{
	uint64_t covered = new->start;

	for (size_t i = first; i < end; i++) {
		const struct resolver_piece *old = &space->pieces[i];

		if (old->start > covered)
			put_new(change, new, covered, old->start);
		overlay(space, store, change, old, new);
		covered = old->end;
	}
	if (covered < new->end)
		put_new(change, new, covered, new->end);
}

static void count_holes(struct resolver_space *space, const struct resolver_piece *pieces,
			size_t count, size_t each)
{
	for (size_t i = 0; i < count; i++)
		if (!pieces[i].image)
			space->holes += each;
}

static void replace(struct resolver_space *space, struct resolver_store *store, size_t first,
		    size_t end, const struct change *change)
{
	struct resolver_piece *at = space->pieces + first;

	count_holes(space, at, end - first, (size_t)-1);
	count_holes(space, change->pieces, change->count, 1);
	for (size_t i = first; i < end; i++)
		resolver_image_release(store, space->pieces[i].image);
	memmove(at + change->count, space->pieces + end, (space->count - end) * sizeof(*at));
	memcpy(at, change->pieces, change->count * sizeof(*at));
	space->count = space->count - (end - first) + change->count;
}

int resolver_space_map(struct resolver_space *space, struct resolver_store *store,
		       const struct resolver_piece *piece)
{
	struct resolver_piece few[16], new = *piece;
	struct change change = { .pieces = few };
	size_t first = first_after(space, piece->start), end = first, most;
	int error;

	new.until = UINT64_MAX;
	while (end < space->count && space->pieces[end].start < piece->end)
		end++;
	/* Each piece may leave two and a gap before it, and one may follow the last. */
	most = 3 * (end - first) + 2;
	error = reserve(store, &space->pieces, &space->capacity, space->count + most);
	if (error)
		return error;
	if (most > sizeof(few) / sizeof(few[0]))
		change.pieces = calloc(most, sizeof(*change.pieces));
	if (!change.pieces)
		return -ENOMEM;
	cover(space, store, &change, first, end, &new);
	replace(space, store, first, end, &change);
	if (change.pieces != few)
		free(change.pieces);
	space->latest = time_later(space->latest, piece->from);
	return 0;
}

static const struct resolver_piece *find_past(const struct resolver_space *space, uint64_t address,
					      uint64_t time)
{
	const struct resolver_piece *found = NULL;

	for (size_t i = 0; i < space->past_count; i++) {
		const struct resolver_piece *piece = &space->past[i];

		if (address >= piece->start && address < piece->end && piece->from <= time &&
		    time < piece->until && (!found || piece->from >= found->from))
			found = piece;
	}
	return found && found->image ? found : NULL;
}

const struct resolver_piece *resolver_space_find(const struct resolver_space *space,
						 uint64_t address, uint64_t time)
{
	size_t index = first_after(space, address);
	const struct resolver_piece *piece = index < space->count ? &space->pieces[index] : NULL;

	if (piece && address >= piece->start && piece->from <= time)
		return piece->image ? piece : NULL;
	return time < space->latest ? find_past(space, address, time) : NULL;
}

static void forget_past(struct resolver_space *space, struct resolver_store *store,
			uint64_t horizon)
{
	size_t kept = 0;

	for (size_t i = 0; i < space->past_count; i++)
		if (space->past[i].until > horizon)
			space->past[kept++] = space->past[i];
		else
			resolver_image_release(store, space->past[i].image);
	space->past_count = kept;
}

static void forget_holes(struct resolver_space *space, uint64_t horizon)
{
	size_t kept = 0;

	for (size_t i = 0; i < space->count; i++)
		if (space->pieces[i].image || space->pieces[i].from > horizon)
			space->pieces[kept++] = space->pieces[i];
		else
			space->holes--;
	space->count = kept;
}

void resolver_space_forget(struct resolver_space *space, struct resolver_store *store,
			   uint64_t horizon)
{
	forget_past(space, store, horizon);
	if (space->holes)
		forget_holes(space, horizon);
}

static void add_candidate(const struct resolver_piece **found, const struct resolver_piece *piece,
			  bool *several)
{
	if (!piece->image)
		return;
	if (*found && !resolver_piece_is_same(*found, piece))
		*several = true;
	*found = piece;
}

/* Both treat TIME as the inexact one. */
static bool may_have_begun(const struct resolver_piece *piece, uint64_t time)
{
	return piece->from <= time + piece->from_error;
}

static bool may_not_have_ended(const struct resolver_piece *piece, uint64_t time)
{
	return piece->until == UINT64_MAX || time < piece->until + piece->until_error;
}

const struct resolver_piece *resolver_space_find_about(const struct resolver_space *space,
						       uint64_t address, uint64_t time,
						       bool *several)
{
	size_t index = first_after(space, address);
	const struct resolver_piece *piece = index < space->count ? &space->pieces[index] : NULL;
	const struct resolver_piece *found = NULL;

	*several = false;
	if (piece && address >= piece->start && may_have_begun(piece, time)) {
		add_candidate(&found, piece, several);
		if (piece->from + piece->from_error <= time)
			return found;
	}
	for (size_t i = 0; i < space->past_count; i++) {
		piece = &space->past[i];
		if (address >= piece->start && address < piece->end &&
		    may_have_begun(piece, time) && may_not_have_ended(piece, time))
			add_candidate(&found, piece, several);
	}
	return found;
}

int resolver_space_inherit(struct resolver_space *to, const struct resolver_space *from,
			   struct resolver_store *store, uint64_t time)
{
	int error = 0;

	for (size_t i = 0; i < from->count + from->past_count && !error; i++) {
		const struct resolver_piece *piece =
			i < from->count ? &from->pieces[i] : &from->past[i - from->count];

		if (piece->from <= time && time < piece->until)
			error = resolver_space_map(to, store, piece);
	}
	/* Earlier times belong to the parent. */
	resolver_space_forget(to, store, time);
	return error;
}

void resolver_space_free(struct resolver_space *space, struct resolver_store *store)
{
	for (size_t i = 0; i < space->count; i++)
		resolver_image_release(store, space->pieces[i].image);
	for (size_t i = 0; i < space->past_count; i++)
		resolver_image_release(store, space->past[i].image);
	resolver_store_free(store, space->pieces, space->capacity * sizeof(space->pieces[0]));
	resolver_store_free(store, space->past, space->past_capacity * sizeof(space->past[0]));
	*space = (struct resolver_space){ 0 };
}
