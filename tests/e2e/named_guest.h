/* SPDX-License-Identifier: Apache-2.0 */
/* A fake guest whose names are in perf's build-id cache, in a home directory of the test's own.
 * Main thread.
 */
#ifndef KVMSCOPE_TESTS_E2E_NAMED_GUEST_H
#define KVMSCOPE_TESTS_E2E_NAMED_GUEST_H

#include "tests/unit/fake_guest.h"

struct named_guest {
	char home[64];  /* is HOME until named_guest_end() */
	char path[128]; /* for a recording of it, below HOME */
	struct fake_guest guest;
	struct build_id_cache_boot boot; /* what the cache has of its boot */
};

/* The guest that fake_guest_make() makes of TAG and SLIDE; its names are nowhere yet. */
void named_guest_begin(struct named_guest *named, uint8_t tag, uint64_t slide);

/* Puts its names into the cache and, with CODE, its code; a failure is the test's. */
void named_guest_cache(struct named_guest *named, bool code);

/* Frees it, and removes the home with all that is in it. */
void named_guest_end(struct named_guest *named);

#endif
