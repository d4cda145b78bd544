/* SPDX-License-Identifier: Apache-2.0 */
/* JIT maps of the guest's processes: which ones to request from the guest agent, and how to decode
 * its answers into sideband records (docs/agent-protocol.md, "JIT maps"). Agent thread only.
 */
#ifndef KVMSCOPE_AGENT_AGENT_JIT_H
#define KVMSCOPE_AGENT_AGENT_JIT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/sideband_record.h"

/* Processes whose map is requested at the same time; the oldest makes room for the next. */
#define AGENT_JIT_PROCESSES_MAX 256u

/* Zeroed: no processes. */
struct agent_jit {
	struct {
		uint32_t pid; /* 0: none */
		bool requested;
		uint64_t mapped; /* guest time of its latest mapping */
	} processes[AGENT_JIT_PROCESSES_MAX];
	uint32_t next;    /* index for the next process */
	uint32_t waiting; /* number of processes not requested yet */
};

/* Observes an event of the guest's kernel at guest time TIME. A process that maps anonymous
 * executable memory gets a request; after an execve or the reuse of its pid it needs a new one.
 * Events of two CPUs come in any order, so times decide to which program a mapping belongs.
 */
void agent_jit_observe(struct agent_jit *jit, const struct sideband *record, uint64_t time);

/* The next process to request, which then counts as requested; 0: none. */
uint32_t agent_jit_next(struct agent_jit *jit);

/* True if any process has a request: the agent reads its map with each ping. */
bool agent_jit_active(const struct agent_jit *jit);

/* Drops all processes, because the session ended. */
void agent_jit_reset(struct agent_jit *jit);

/* Decodes MESSAGE, of type AGENT_JIT_MAP, and calls EACH for the map and then for each new line.
 * The records' times are the guest's. False if it is invalid; EACH was then not called.
 */
bool agent_jit_decode(const struct agent_message *message,
		      void (*each)(void *context, struct sideband *record), void *context);

#endif
