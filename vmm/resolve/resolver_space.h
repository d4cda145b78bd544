/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of an address space over time: at each address and time the latest record that
 * covered the address counts, be it a mapping or an unmapping. Records come in any order of time,
 * not before the horizon. Collector thread.
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
	uint64_t until;               /* ns; UINT64_MAX: present */
	uint32_t from_error;          /* ns, error of FROM, */
	uint32_t until_error;         /* and of UNTIL */
	uint64_t offset;              /* of START in the image's file, bytes */
	struct resolver_image *image; /* held; NULL: nothing is mapped */
};

/* Most earlier pieces that are kept until they expire: late samples search all of them. */
#define RESOLVER_PAST_MAX 16384

/* Do both map an address to the same byte of the same file? */
static inline bool resolver_piece_is_same(const struct resolver_piece *a,
					  const struct resolver_piece *b)
{
	return a->image == b->image && a->offset - a->start == b->offset - b->start;
}

/* Zeroed: nothing is mapped. */
struct resolver_space {
	struct resolver_piece *pieces; /* present: by address, without overlaps */
	size_t count, capacity;
	struct resolver_piece *past; /* earlier ones, at most RESOLVER_PAST_MAX */
	size_t past_count, past_capacity;
	size_t holes;    /* number of present pieces without an image */
	uint64_t latest; /* time of the latest record */
};

/*
 * Maps PIECE's image (NULL: nothing) at its range from FROM on, until a later record covers it. The
 * caller keeps its own hold of the image. -ENOMEM; -E2BIG: more pieces than Linux allows
 * (vm.max_map_count).
 */
int resolver_space_map(struct resolver_space *space, struct resolver_store *store,
		       const struct resolver_piece *piece);

/* The mapping of ADDRESS at TIME; NULL: none. Valid until the space changes. */
const struct resolver_piece *resolver_space_find(const struct resolver_space *space,
						 uint64_t address, uint64_t time);

/* A mapping that ADDRESS may have had at TIME, given the errors of its bounds; NULL: none.
 * *SEVERAL: more than one image or offset is possible. Valid until the space changes. */
const struct resolver_piece *resolver_space_find_about(const struct resolver_space *space,
						       uint64_t address, uint64_t time,
						       bool *several);

/* Maps in TO, from TIME on, everything that FROM has at TIME (a fork). -ENOMEM, -E2BIG. */
int resolver_space_inherit(struct resolver_space *to, const struct resolver_space *from,
			   struct resolver_store *store, uint64_t time);

/* Does it keep anything that resolver_space_forget() will free one day? */
static inline bool resolver_space_has_past(const struct resolver_space *space)
{
	return space->past_count || space->holes;
}

/* Frees what no lookup of a time from HORIZON (ns) on can find. */
void resolver_space_forget(struct resolver_space *space, struct resolver_store *store,
			   uint64_t horizon);

/* Frees what it holds; zeroed, it holds nothing. */
void resolver_space_free(struct resolver_space *space, struct resolver_store *store);

#endif
