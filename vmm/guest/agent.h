/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of the guest agent: a thread that talks with it over one
 * socket (docs/agent-protocol.md) and writes what it tells, in the host's
 * time, as sideband records into a ring.
 *
 * The guest is hostile: what it sends can fill the ring and be wrong about
 * itself; it can not make the thread wait, grow or end. A guest that says
 * nothing any more is asked to begin anew, with everything it knows.
 */
#ifndef KVMSCOPE_GUEST_AGENT_H
#define KVMSCOPE_GUEST_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/ring.h"

struct agent;

struct agent_options {
	int fd; /* connected stream socket to the guest's port; the agent's from agent_start() on */
	struct ring *ring; /* written by the agent's thread alone until agent_stop() returns */
	bool tsc_known;
	uint64_t tsc_offset; /* the guest's TSC less the host's, on every vCPU; with tsc_known */
};

struct agent_statistics {
	uint64_t sessions;               /* begun by the guest's answer; 0: it has not answered yet */
	bool open;                       /* the present one has been answered, and goes on */
	uint32_t version, features;      /* of the latest, as in struct agent_hello, and the next two */
	int32_t error;                   /* negative errno; -EPROTONOSUPPORT: it speaks another version */
	char release[AGENT_RELEASE_MAX]; /* the guest's bytes, NUL-terminated */
	bool snapshot_done;
	uint64_t records;     /* written to the ring */
	uint64_t refused;     /* records and messages that could not be */
	uint64_t lost;        /* that the guest's kernel dropped, of all sessions */
	uint64_t unsteady;    /* processes that the snapshot left out, */
	uint64_t cut;         /* and mappings or threads: as in struct agent_round */
	uint64_t clock_error; /* ns: the guest's time is known within so much now */
	uint64_t clock_jumps; /* times that its clock contradicted itself */
	bool tsc_used;        /* the clock is known by the TSC */
};

/* Starts the thread. -ENOMEM, and the errors of threads and eventfd(). */
int agent_start(struct agent **agent, const struct agent_options *options);

/* Any thread. */
void agent_statistics(struct agent *agent, struct agent_statistics *statistics);

/*
 * Takes what has been received, ends the session and the thread, closes the
 * socket and frees all. STATISTICS, which may be NULL, gets the final counts. Works on NULL.
 */
void agent_stop(struct agent *agent, struct agent_statistics *statistics);

#endif
