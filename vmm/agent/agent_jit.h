/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JIT maps of the guest's processes: which the guest agent is asked for,
 * and what it tells of them, as sideband (docs/agent-protocol.md, "JIT maps"). One thread: the
 * agent's.
 */
#ifndef KVMSCOPE_AGENT_AGENT_JIT_H
#define KVMSCOPE_AGENT_AGENT_JIT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/sideband_record.h"

/* That are asked for at a time; the one that was asked for first goes for the next. */
#define AGENT_JIT_PROCESSES_MAX 256u

/* Zeroed: none. */
struct agent_jit {
	struct {
		uint32_t pid; /* 0: none */
		bool asked;
		uint64_t mapped; /* guest time of its latest mapping */
	} processes[AGENT_JIT_PROCESSES_MAX];
	uint32_t next;    /* the place of the next process */
	uint32_t waiting; /* so many are not asked for yet */
};

/*
 * Sees what the guest's kernel told of TIME (by the guest's clock): a process that has executable
 * memory which is no file's is asked for; another program in it, or another process of its number,
 * anew. What two CPUs told comes in any order: times say whose program a mapping is.
 */
void agent_jit_observe(struct agent_jit *jit, const struct sideband *record, uint64_t time);

/* The process to be asked for next, which then counts as asked for; 0: none. */
uint32_t agent_jit_next(struct agent_jit *jit);

/* Is any asked for? Its map is looked at with each ping. */
bool agent_jit_active(const struct agent_jit *jit);

/* The guest forgot what it was asked. */
void agent_jit_reset(struct agent_jit *jit);

/*
 * Gives what MESSAGE, of type AGENT_JIT_MAP, says: first the map, then its new lines. RECORD's time
 * and since are by the guest's clock. False: it can not be, and nothing was given.
 */
bool agent_jit_decode(const struct agent_message *message,
		      void (*each)(void *context, struct sideband *record), void *context);

#endif
