/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest tells, put into the host's time: records wait until an exchange of clocks lies
 * behind them (agent_clock.h), and for room in the ring that they go to. What can have no place in
 * time is not guessed: it is told as a loss (SIDEBAND_LOST), and the session is to begin anew. One
 * thread: the agent's.
 */
#ifndef KVMSCOPE_AGENT_AGENT_PLACER_H
#define KVMSCOPE_AGENT_AGENT_PLACER_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/ring.h"
#include "shared/sideband_record.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_held.h"

/* Zeroed but for the ring: no session was yet. */
struct agent_placer {
	struct ring *ring; /* that nobody else writes to */
	/* Of this session. */
	struct agent_clock clock; /* its owner gives it exchanges */
	bool broken;              /* something can have no place: the session is to begin anew */
	struct agent_held held;   /* what an exchange is waited for */
	uint64_t placed;          /* ns, the latest time of what is in the ring; 0: nothing is */
	/* What came and has no place. */
	struct {
		uint64_t events;
		uint64_t lost;  /* that the guest said are lost, */
		uint64_t since; /* guest time of the earliest of all; UINT64_MAX: there are none */
	} dropped;
	/* Of sessions before, while the ring has no room for it; else of size 0. */
	struct sideband_lost loss;
};

/* A session begins; one before it was ended. */
void agent_placer_begin(struct agent_placer *placer);

/* Takes a copy of RECORD, which is of GUEST_TIME: see agent_placer_place(). Its members that are
 * times are the guest's. */
void agent_placer_write(struct agent_placer *placer, struct sideband *record, uint64_t guest_time);

/* Puts what the clock now reaches into the ring, as far as there is room. */
void agent_placer_place(struct agent_placer *placer);

/* Does much wait for an exchange? */
bool agent_placer_holds_much(const struct agent_placer *placer);

/* Puts a loss that is still to be told into the ring. False while there is no room for it. */
bool agent_placer_write_loss(struct agent_placer *placer);

/*
 * The session ends: the guest will not tell the time any more, and its latest message came at
 * RECEIVED (ns). What was told so far may not be so any more from here on, which is told as a loss.
 * Events that had no place.
 */
uint64_t agent_placer_end(struct agent_placer *placer, uint64_t received);

/* There will be no other session. As agent_placer_end(); it is a loss only where something has no
 * place. */
uint64_t agent_placer_stop(struct agent_placer *placer, uint64_t received);

void agent_placer_free(struct agent_placer *placer);

#endif
