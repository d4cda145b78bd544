/* SPDX-License-Identifier: Apache-2.0 */
/* User-space images of the collector's kernel. Collector thread. */
#ifndef KVMSCOPE_RECORD_COLLECTOR_USER_H
#define KVMSCOPE_RECORD_COLLECTOR_USER_H

#include "vmm/guest/linux/deferred_lookup.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/record/collector_kernel.h"
#include "vmm/record/user_symbols.h"
#include "vmm/record/user_tables.h"

/*
 * SAMPLE, completed with what its stop had no time for, as far as that can be found now: see
 * deferred_lookup.h. ROOM, of DEFERRED_LOOKUP_SIZE bytes, is the caller's. Guest memory must still
 * be there.
 */
const struct sample *collector_user_complete(const struct collector_kernel *kernel,
					     const struct sample *sample, struct sample *room);

/*
 * Reads the names of new images and cgroups: after rings were drained, before their samples are
 * decided. Guest memory must still be there.
 */
void collector_user_load(struct collector_kernel *kernel);
/* Adds those of IMAGES whose names were read since the last call. */
void collector_user_add_images(struct image_catalog *catalog, const struct user_images *images);

/* Builds unwind tables for up to some ms; the rest is left for the next turn. NOW is ns of
 * CLOCK_MONOTONIC. */
void collector_user_make_tables(const struct collector_kernel *kernel, struct user_tables *tables,
				uint64_t now);

/* Puts their symbols into the build-id cache, for up to some ms. SYMBOLS NULL: no-op. */
void collector_user_find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
				 uint64_t now);

/* The same for all that are left, before guest memory is gone; for a second at most. */
void collector_user_last_symbols(struct collector_kernel *kernel, struct user_symbols *symbols);

#endif
