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

struct run_symbols;

struct run_symbols_statistics {
	uint64_t added;    /* images whose names are in the cache now */
	uint64_t nameless; /* that the guest sent no names of */
	uint64_t dropped;  /* that were, and went for others */
	uint64_t unasked;  /* not asked for yet, as too many were waiting; each once */
	bool more;         /* there are more of them than could be counted */
	uint64_t failed;   /* that could not be written; told when it happened first */
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
