/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names of a domain no recording needs any more. Names lie in a build-id cache, by build id
 * (vmm/symbols/build_id_cache.h); a recording says which builds it is of. What is in use has a new
 * time: the cache's writers see to that (build_id_cache_touch()).
 */
#ifndef KVMSCOPE_DAEMON_OLD_NAMES_H
#define KVMSCOPE_DAEMON_OLD_NAMES_H

#include <stdint.h>

/* What went. */
struct old_names_removed {
	uint64_t builds, bytes;
};

/*
 * Removes builds below NAMES that no recording in DIRECTORY (files with ".perf.data" in their
 * names) is of, and that nobody has used since SINCE (s since 1970): the one first that was used
 * longest ago, until BYTES have gone or there is none. Reads all recordings, which takes a second
 * or so for each GiB. An error, with the message, and nothing goes, if one that is complete can not
 * be read: it may need anything. One without a whole header needs nothing. Any thread, one at a
 * time for a domain.
 */
int old_names_remove(const char *directory, const char *names, int64_t since, uint64_t bytes,
		     struct old_names_removed *removed);

#endif
