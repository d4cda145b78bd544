/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a guest's programs and libraries that one run puts into the build-id cache: no more
 * than a limit of them, then what came first goes. A file of perf's own is left alone. Any one
 * thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_IMAGE_SYMBOLS_H
#define KVMSCOPE_SYMBOLS_IMAGE_SYMBOLS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/symbols/build_id_cache.h"

struct image_symbols_statistics {
	uint64_t added;    /* images whose names are in the cache now */
	uint64_t nameless; /* of which there are none */
	uint64_t dropped;  /* that were, and went for others */
	uint64_t failed;   /* that could not be written; told when it happened first */
	uint64_t written;  /* bytes of files, of those that went, too */
	uint64_t misread;  /* that perf takes for others; told when it happened first */
};

struct added_image;

struct image_symbols {
	char directory[PATH_MAX];
	const struct build_id_cache_location *place;
	const char *installed; /* directory with separate files (installed_symbols.h); "" after
				  opening */
	size_t limit;
	struct added_image *oldest, **last;
	size_t bytes;
	struct image_symbols_statistics statistics;
};

/* In PLACE, which outlives it (NULL: perf's), with LIMIT in bytes of files. -ENOENT and others
 * without a build-id cache. NAMES must stay where it is. */
int image_symbols_open(struct image_symbols *names, const struct build_id_cache_location *place,
		       size_t limit);

/* Has this machine a separate file of that build with its symbols? */
bool image_symbols_are_installed(const struct image_symbols *names, const uint8_t *build_id,
				 size_t build_id_size);

/* Are there names of that build, whoever put them there? Fewer than are installed are none, if they
 * can be replaced. */
bool image_symbols_has(struct image_symbols *names, const uint8_t *build_id, size_t build_id_size);

/*
 * The same, but of all of its functions, as far as there can be more: those that a guest's agent
 * told and had no more of are all for IMAGE_SYMBOLS_REMEMBERED seconds, as somebody may install
 * them there.
 */
#define IMAGE_SYMBOLS_REMEMBERED (24 * 3600L)
bool image_symbols_has_all(const struct image_symbols *names, const uint8_t *build_id,
			   size_t build_id_size);

/*
 * TABLE as image_file_make() wants it, of an image with that build id, whose size is 1 to 20;
 * nothing is done where there are names of it. Of a stripped image with all functions, where this
 * machine has them: perf looks for such files beside the cache, too, and up to 6.1 takes their
 * addresses for others than they are.
 */
void image_symbols_add(struct image_symbols *names, struct span table, const uint8_t *build_id,
		       size_t build_id_size);

/* The same, but in place of fewer names that this or another run put there, as from a guest's
 * memory; of who has no more. */
void image_symbols_replace(struct image_symbols *names, struct span table, const uint8_t *build_id,
			   size_t build_id_size);

/* Takes back what was added of that build, if it was. */
void image_symbols_remove(struct image_symbols *names, const uint8_t *build_id,
			  size_t build_id_size);

/* What is in the cache stays. */
void image_symbols_close(struct image_symbols *names);

#endif
