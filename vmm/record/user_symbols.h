/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of user functions without help from the guest: the symbol table of each sampled file is
 * read from the guest's page cache and put into the build-id cache, where perf and kvmscope find
 * it. A file of an in-memory file system is there as a whole; of other files only the pages that
 * were read, mostly those of the dynamic linker: exported functions. Only complete tables of files
 * with a build id are used. One thread, not a vCPU's.
 */
#ifndef KVMSCOPE_RECORD_USER_SYMBOLS_H
#define KVMSCOPE_RECORD_USER_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/record/image_parser.h"
#include "vmm/symbols/build_id_cache.h"

struct user_symbols;

/* Bytes in the cache for one guest; the oldest are dropped for new ones. */
#define USER_SYMBOLS_SIZE_MAX (64ull << 20)
/* Bytes written there in total, dropped ones included. */
#define USER_SYMBOLS_WRITTEN_MAX (256ull << 20)

/* PLACE and PARSER outlive it; PLACE NULL: that of perf. -ENOMEM; -ENOENT and others without a
 * cache. */
int user_symbols_create(struct user_symbols **symbols, const struct build_id_cache_location *place,
			struct image_parser *parser);

/* NULL is a no-op. The cache keeps its contents. */
void user_symbols_free(struct user_symbols *symbols);

/* Tries to read the symbols of one image that is due. KERNEL is running; NOW is ns of any steady
 * clock. False: none is due. After true, call user_symbols_commit(). */
bool user_symbols_step(struct user_symbols *symbols, struct user_images *images,
		       const struct guest_kernel *kernel, const struct guest_view *view,
		       uint64_t now);

/* Writes what was read to the cache if it is CERTAIN that KERNEL was still running; otherwise it is
 * read again. */
void user_symbols_commit(struct user_symbols *symbols, bool certain, uint64_t now);

/* Images are tried DELAY ns after they were first seen, as another source may have more symbols. 0,
 * the default: at once. */
void user_symbols_delay(struct user_symbols *symbols, uint64_t delay);

/* The guest is about to end: the next turns try all missing images once more, without delay. */
void user_symbols_expire(struct user_symbols *symbols);

#endif
