/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is mapped in an address space, and what was: at each address and time
 * the latest record that covered the address counts, be it a mapping or the
 * end of one. Records may come in any order of time, none before the horizon
 * to which history was forgotten. The resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_SPACE_H
#define KVMSCOPE_RESOLVE_RESOLVER_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/resolve/resolver_image.h"

/* One image, or nothing, at [start, end) since FROM. */
struct resolver_piece {
	uint64_t start, end;          /* GVA */
	uint64_t from;                /* ns */
	uint64_t until;               /* ns; UINT64_MAX: it is still so */
	uint32_t from_error;          /* ns: it began so much before or after FROM; */
	uint32_t until_error;         /* and ended so of UNTIL */
	uint64_t offset;              /* in the image, of start */
	struct resolver_image *image; /* held; NULL: nothing is mapped there */
};

/* Do both map an address to the same byte of the same file? */
static inline bool resolver_piece_is_same(const struct resolver_piece *a,
					  const struct resolver_piece *b)
{
	return a->image == b->image && a->offset - a->start == b->offset - b->start;
}

/* Zeroed: nothing is mapped. */
struct resolver_space {
	struct resolver_piece *pieces; /* as it is: in order of addresses, none overlaps another */
	size_t count, capacity;
	struct resolver_piece *past; /* as it was */
	size_t past_count, past_capacity;
	size_t holes;    /* of the pieces, those where nothing is mapped any more */
	uint64_t latest; /* time of the latest record */
};

/*
 * From PIECE's FROM on, its image is at its place (NULL: nothing is), until a
 * later record says otherwise. The caller keeps its own hold of the image.
 * -ENOMEM, or -E2BIG for more pieces than Linux allows (vm.max_map_count).
 */
int resolver_space_map(struct resolver_space *space, struct resolver_store *store,
		       const struct resolver_piece *piece);

/* What was at ADDRESS at TIME, or NULL. Valid until the space changes. */
const struct resolver_piece *resolver_space_find(const struct resolver_space *space,
						 uint64_t address, uint64_t time);

/*
 * What may have been at ADDRESS at TIME, by the errors of its bounds, or NULL; *SEVERAL: it
 * may have been more than one image or offset. Valid until the space changes.
 */
const struct resolver_piece *resolver_space_find_about(const struct resolver_space *space,
						       uint64_t address, uint64_t time,
						       bool *several);

/* Everything that is mapped in FROM at TIME is in TO from then on (a fork). -ENOMEM, -E2BIG. */
int resolver_space_inherit(struct resolver_space *to, const struct resolver_space *from,
			   struct resolver_store *store, uint64_t time);

/* Is there something that resolver_space_forget() might free one day? */
static inline bool resolver_space_has_past(const struct resolver_space *space)
{
	return space->past_count || space->holes;
}

/* Nobody will ask for a time before HORIZON any more. */
void resolver_space_forget(struct resolver_space *space, struct resolver_store *store,
			   uint64_t horizon);

/* Frees what it holds; zeroed, it holds nothing. */
void resolver_space_free(struct resolver_space *space, struct resolver_store *store);

#endif
