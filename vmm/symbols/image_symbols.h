/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols of user-space images that one session adds to the build-id cache, up to a limit in
 * bytes; beyond it the oldest are removed. Files of perf are left alone. One thread at a time.
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
	uint64_t added;    /* images whose symbols are in the cache now */
	uint64_t nameless; /* images without symbols */
	uint64_t dropped;  /* images removed because of the limit */
	uint64_t failed;   /* images that could not be written; the first is reported */
	uint64_t written;  /* bytes of files, removed ones included */
	uint64_t misread;  /* images for which perf shows wrong symbols; the first is reported */
};

struct added_image;

struct image_symbols {
	char directory[PATH_MAX];
	const struct build_id_cache_location *location;
	const char *installed; /* root of separate files (installed_symbols.h); "" after opening */
	size_t limit;
	struct added_image *oldest, **last;
	size_t bytes;
	struct image_symbols_statistics statistics;
};

/* Uses the cache at LOCATION, which outlives SYMBOLS (NULL: perf's), up to LIMIT bytes of files.
 * SYMBOLS must not move. The errors of build_id_cache_open(). */
int image_symbols_open(struct image_symbols *symbols,
		       const struct build_id_cache_location *location, size_t limit);

/* True if a separate file of that build with its symbols is installed on this machine. */
bool image_symbols_are_installed(const struct image_symbols *symbols, struct span build_id);

/* True if the cache has symbols of that build, ours or perf's. False if they can be replaced by
 * more that are installed. */
bool image_symbols_has(struct image_symbols *symbols, struct span build_id);

/*
 * True if the cache has all available functions of that build. Symbols that the guest agent marked
 * as complete count for IMAGE_SYMBOLS_REMEMBERED seconds, because more may be installed in the
 * guest later.
 */
#define IMAGE_SYMBOLS_REMEMBERED (24 * 3600L)
bool image_symbols_has_all(const struct image_symbols *symbols, struct span build_id);

/*
 * Adds TABLE (as in image_file_make()) of an image with that build id of 1 to 20 bytes, unless the
 * cache has symbols of it. For a stripped image adds all functions if this machine has them
 * installed: perf looks for such files in addition to the cache, and up to 6.1 misreads their
 * addresses.
 */
void image_symbols_add(struct image_symbols *symbols, struct span table, struct span build_id);

/* The same for a TABLE with all symbols of its source; replaces fewer symbols that kvmscope added,
 * for example from guest memory. */
void image_symbols_replace(struct image_symbols *symbols, struct span table, struct span build_id);

/* Removes the files that this session added for that build, if any. */
void image_symbols_remove(struct image_symbols *symbols, struct span build_id);

/* Frees memory; the cache keeps its files. */
void image_symbols_close(struct image_symbols *symbols);

#endif
