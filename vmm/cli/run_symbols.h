/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the guest's programs and libraries: for each image that is
 * mapped and that the build-id cache does not have, the guest's agent is asked
 * once for its symbols, and what comes is put there. It is asked at once: when a
 * sample is known to be of an image, the guest may have ended. One guest puts no more
 * than --agent-memory there: then what it told first goes.
 */
#ifndef KVMSCOPE_CLI_RUN_SYMBOLS_H
#define KVMSCOPE_CLI_RUN_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband.h"
#include "vmm/guest/agent.h"
#include "vmm/profile/image_names.h"

struct run_symbols;

struct run_symbols_statistics {
	struct image_names_statistics names;
	uint64_t unasked; /* images not asked for yet, as too many were waiting; each once */
	bool more;        /* there are more of them than could be counted */
};

/* With LIMIT in bytes. -ENOMEM; -ENOENT and others without a build-id cache. */
int run_symbols_create(struct run_symbols **symbols, size_t limit);

/* The collector's thread, as the next one. */
void run_symbols_see(struct run_symbols *symbols, struct agent *agent, const struct sideband_mmap *mapping);

/* Puts what has come into the cache. Any one thread at a time. */
void run_symbols_turn(struct run_symbols *symbols, struct agent *agent);

void run_symbols_statistics(const struct run_symbols *symbols, struct run_symbols_statistics *statistics);

/* NULL is a no-op. What is in the cache stays. */
void run_symbols_destroy(struct run_symbols *symbols);

#endif
