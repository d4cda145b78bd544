/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the guest's programs and libraries: for each image that is
 * mapped and that the build-id cache does not have, the guest's agent is asked
 * once for its symbols, and what comes is put there. It is asked at once: when a
 * sample is known to be of an image, the guest may have ended. One guest puts no more
 * than a limit there: then what it told first goes.
 */
#ifndef KVMSCOPE_SESSION_AGENT_NAMES_H
#define KVMSCOPE_SESSION_AGENT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/agent/agent_host.h"
#include "vmm/symbols/image_symbols.h"

struct agent_names;

struct agent_names_statistics {
	struct image_symbols_statistics names;
	uint64_t unasked; /* images not asked for yet, as too many were waiting; each once */
	bool more;        /* there are more of them than could be counted */
};

/* In PLACE, which outlives it (NULL: perf's), with LIMIT in bytes. -ENOMEM; -ENOENT and others
 * without a build-id cache. */
int agent_names_create(struct agent_names **symbols, const struct build_id_cache_location *place,
		       size_t limit);

/* MAPPING is there: one that the agent did not tell, or not only just now. One thread at a time, as
 * all of these.
 */
void agent_names_see(struct agent_names *symbols, struct agent *agent,
		     const struct sideband_mmap *mapping);

/* Asks AGENT, which was started with its option `mappings`, for what it tells of, and puts what has
 * come into the cache. */
void agent_names_turn(struct agent_names *symbols, struct agent *agent);

void agent_names_statistics(const struct agent_names *symbols,
			    struct agent_names_statistics *statistics);

/* NULL is a no-op. What is in the cache stays. */
void agent_names_destroy(struct agent_names *symbols);

#endif
