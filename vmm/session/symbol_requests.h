/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols from the guest agent. For each user-space image that is mapped and that the build-id
 * cache does not have, the agent is asked once for its symbols, and its answer goes into the cache.
 * It is asked as soon as the image is mapped: the guest may have ended by the time a sample in it
 * is seen. The cache holds at most LIMIT bytes of one guest; the oldest images are removed first.
 *
 * The collector's thread, unless a function says otherwise.
 */
#ifndef KVMSCOPE_SESSION_SYMBOL_REQUESTS_H
#define KVMSCOPE_SESSION_SYMBOL_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/agent/agent_client.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/symbols/image_symbols.h"

struct symbol_requests;

struct symbol_requests_statistics {
	struct image_symbols_statistics names;
	uint64_t unasked; /* images not requested yet because too many requests were pending */
	bool more;        /* there are more of them than could be counted */
};

/* CACHE (NULL: perf's) must outlive the result. Any thread. -ENOMEM, the errors of opening the
 * cache. */
int symbol_requests_create(struct symbol_requests **symbols,
			   const struct build_id_cache_location *cache, size_t limit);

/* MAPPING exists, whether AGENT reported it or another source did. */
void symbol_requests_add_mapping(struct symbol_requests *symbols, struct agent *agent,
				 const struct sideband_mmap *mapping);

/* Requests symbols for the mappings that AGENT, started with its option `mappings`, reported, and
 * stores the answers. */
void symbol_requests_update(struct symbol_requests *symbols, struct agent *agent);

/*
 * The kernel's symbols that AGENT sent last, the caller's to free. NULL: there are none, or they
 * are unusable; then it is asked for those newer than MODULES_HASH (0: any). Any one thread at a
 * time.
 */
struct reported_kernel *symbol_requests_kernel(struct agent *agent, uint64_t modules_hash);

/* After the collector has stopped, any thread. The second logs, for an agent with STATISTICS, which
 * symbols are missing and why. */
void symbol_requests_count(const struct symbol_requests *symbols,
			   struct symbol_requests_statistics *statistics);
void symbol_requests_report(const struct symbol_requests *symbols,
			    const struct agent_statistics *statistics);

/* Leaves the cache as it is. NULL is a no-op. */
void symbol_requests_destroy(struct symbol_requests *symbols);

#endif
