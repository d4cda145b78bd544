/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the guest agent that have no place in the host's time yet: they wait, in the order in
 * which they came, for an exchange of clocks behind them (agent_clock.h). One thread: the agent's.
 */
#ifndef KVMSCOPE_AGENT_AGENT_HELD_H
#define KVMSCOPE_AGENT_AGENT_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"

/* Bytes: several times what an agent can send before it sees a message (its buffer, 512 KiB). */
#define AGENT_HELD_MAX (4ul << 20)

/* All zero: none. */
struct agent_held {
	uint8_t *bytes; /* owned */
	size_t begin, end, capacity;
	uint64_t latest; /* guest time, of those that wait; 0: none does */
};

/* A copy of RECORD, which is of GUEST_TIME. False: too many wait, or there is no memory. */
bool agent_held_add(struct agent_held *held, uint64_t guest_time, const struct sideband *record);

/* The first one, to be changed as the caller likes, but for its size; NULL: none. Until it is
 * dropped, or another one is added. */
struct sideband *agent_held_first(const struct agent_held *held, uint64_t *guest_time);
void agent_held_drop(struct agent_held *held);

/* Drops all, and the memory. */
void agent_held_clear(struct agent_held *held);

#endif
