/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake guest whose symbols are in perf's build-id cache, in a home directory of the test. Main
 * thread.
 */
#ifndef KVMSCOPE_TESTS_E2E_NAMED_GUEST_H
#define KVMSCOPE_TESTS_E2E_NAMED_GUEST_H

#include "tests/unit/fake_guest.h"

struct named_guest {
	char home[64];  /* is HOME until named_guest_end() */
	char path[128]; /* for a recording of the guest, below HOME */
	struct fake_guest guest;
	struct build_id_cache_boot boot; /* the files in the cache for this boot of the guest */
};

/* Creates the guest with fake_guest_make() from TAG and SLIDE; no symbols are installed yet. */
void named_guest_begin(struct named_guest *named, uint8_t tag, uint64_t slide);

/* Puts its symbols and, with CODE, its code into the cache; fails the test on errors. */
void named_guest_cache(struct named_guest *named, bool code);

/* Frees the guest and removes the home directory. */
void named_guest_end(struct named_guest *named);

#endif
