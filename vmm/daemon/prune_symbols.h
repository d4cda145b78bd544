/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes symbols of a domain that no recording needs. They are in a build-id cache, by build id
 * (vmm/symbols/build_id_cache.h), and recordings list their builds. The cache's writers update the
 * time of what is in use (build_id_cache_touch()).
 */
#ifndef KVMSCOPE_DAEMON_PRUNE_SYMBOLS_H
#define KVMSCOPE_DAEMON_PRUNE_SYMBOLS_H

#include <stdint.h>

/* Counts of what was removed. */
struct pruned_symbols {
	uint64_t builds, bytes;
};

/*
 * Removes builds below NAMES that no recording in DIRECTORY (files with ".perf.data" in their
 * names) lists and that were not used since SINCE (s since 1970), the longest unused first, until
 * BYTES are removed or none is left. Reads all recordings, about a second per GiB. An error, with
 * the message: a complete recording cannot be read, which may need anything, and nothing is
 * removed. A recording without a complete header needs nothing. Any thread, one at a time for a
 * domain.
 */
int prune_symbols(const char *directory, const char *names, int64_t since, uint64_t bytes,
		  struct pruned_symbols *removed);

#endif
