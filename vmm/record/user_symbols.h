/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the guest's user functions with nothing in the guest: of each file that a sample was
 * taken in, its symbol table is read out of the guest's page cache and put into the build-id cache,
 * where perf and we look for it. A file of a file system in memory is there as a whole; of others
 * as much as was read: mostly what the dynamic linker uses, so functions that a library exports.
 * Only a table that is there as a whole is taken, and only of a file with a build id. One thread,
 * no vCPU's.
 */
#ifndef KVMSCOPE_RECORD_USER_SYMBOLS_H
#define KVMSCOPE_RECORD_USER_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/symbols/build_id_cache.h"

struct user_symbols;

/* What one guest can put into the cache, in bytes; what came first goes for the rest. */
#define USER_SYMBOLS_SIZE_MAX (64ull << 20)
/* What it can have written there, those included that went. */
#define USER_SYMBOLS_WRITTEN_MAX (256ull << 20)
/* A larger table is left alone: reading it would hold the collector up. */
#define USER_SYMBOLS_TABLE_MAX (8u << 20)

/* PLACE outlives it; NULL: perf's. -ENOMEM; -ENOENT and others without a build-id cache. */
int user_symbols_create(struct user_symbols **symbols, const struct build_id_cache_location *place);

/* NULL is a no-op. What is in the cache stays. */
void user_symbols_free(struct user_symbols *symbols);

/*
 * Tries to read the names of one image of IMAGES, if there is one whose time has come. KERNEL is
 * the one that runs; NOW is ns of any steady clock. False: there is none. Behind true
 * user_symbols_commit() is to be called.
 */
bool user_symbols_turn(struct user_symbols *symbols, struct user_images *images,
		       const struct guest_kernel *kernel, const struct guest_view *view,
		       uint64_t now);

/* Puts what was read into the cache, if it is CERTAIN that KERNEL ran meanwhile; else it is read
 * again. */
void user_symbols_commit(struct user_symbols *symbols, bool certain, uint64_t now);

/* From now on an image is looked at only DELAY ns after it was seen first: somebody else may bring
 * more of its names. 0, as at first: at once. */
void user_symbols_delay(struct user_symbols *symbols, uint64_t delay);

/* The guest is about to end: the next turns try all that is missing once more, whatever the delay
 * was. */
void user_symbols_expire(struct user_symbols *symbols);

#endif
