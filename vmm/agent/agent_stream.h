/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the guest agent's host side (agent_host.h), whose parts these are: agent_stream.c
 * begins sessions, agent_pings.c asks for the guest's time, agent_messages.c takes what is told,
 * agent_host.c has the thread, the socket and the questions of others. The agent's thread alone,
 * but for what is under the lock.
 */
#ifndef KVMSCOPE_AGENT_AGENT_STREAM_H
#define KVMSCOPE_AGENT_AGENT_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/clock_ns.h"
#include "vmm/agent/agent_host.h"
#include "vmm/agent/agent_jit.h"
#include "vmm/agent/agent_placer.h"
#include "vmm/agent/agent_tsc.h"

/* ns: a guest may stand still for a while; after this its agent is held for gone. */
#define AGENT_SILENCE (5000 * NS_PER_MS)

/* Of the guest, whose records are told apart. */
#define AGENT_CPUS_MAX 512

struct agent {
	struct agent_options options;
	pthread_t thread;
	bool ended;         /* there is no thread any more; of the one that calls agent_end() */
	int stop_fd;        /* eventfd: stop */
	unsigned int pings; /* sent in this session */
	struct agent_stream stream;
	uint64_t session;   /* number of the present one */
	uint64_t next_send; /* AGENT_START or AGENT_PING; or, without a socket, a try to have one */
	uint64_t heard;     /* the latest answer */
	uint64_t told;      /* the latest that told the time */
	uint64_t received;  /* the latest message that was no answer */
	uint64_t answer_took;  /* ns, the latest one of this session */
	uint64_t pings_paid;   /* ns: with each this moves on by PING_INTERVAL, of all sessions */
	size_t came;           /* bytes, since the latest */
	struct tsc_mark ping;  /* taken when it was sent */
	uint64_t session_lost; /* as in agent_round, told so far */
	uint64_t round;        /* guest time of the latest, or of the session's begin */
	/* For each of the guest's: guest time of its latest record (0: none), and whether that was
	 * the word that its ring, which was full, is empty. */
	uint64_t written[AGENT_CPUS_MAX];
	bool emptied[AGENT_CPUS_MAX];
	bool tsc_usable; /* it was so far */
	bool tells;      /* an event came since the latest ping */
	bool ping_open;  /* one is not answered yet */
	bool answered;   /* a ping of this session: it tells now, and may be asked */
	struct agent_placer placer;
	/* Of this session. The best since the latest that was taken, of those that tell the time
	 * badly; AFTER is 0: none */
	struct agent_clock_exchange vague;
	uint64_t vague_until;   /* ns: up to here that is counted */
	struct agent_jit jit;   /* of this session */
	pthread_mutex_t lock;   /* of the next eight */
	bool kernel_thought_of; /* agent_want_kernel() was called in this session */
	bool tasks_wanted; /* agent_want_tasks() was called in this session, and not answered, */
	bool tasks_asked;  /* but asked */
	struct reported_tasks tasks; /* of the latest answer; count 0: none */
	int tasks_failed; /* negative errno of the latest answer, if nobody took it yet; 0 */
	struct agent_tables *tables;
	struct agent_mappings mappings; /* that were told; with options.mappings */
	struct agent_statistics statistics;
};

/* ns of CLOCK_MONOTONIC_RAW. */
uint64_t agent_now(void);

/* PAYLOAD is no longer than an agent_start. False: a full socket takes nothing; the guest does not
 * read, and will be asked again. */
bool agent_send(struct agent *agent, enum agent_message_type type, const void *payload,
		size_t size);

/* False: it was cut off, and what is would be taken for the beginning of the next message. */
bool agent_send_whole(struct agent *agent, const struct agent_message *message);

/* Asks the guest to begin the session. */
void agent_send_start(struct agent *agent, uint64_t time);

/* Ends the one that is open, whose records without a place are lost. */
void agent_begin_session(struct agent *agent, uint64_t time);

/* The guest's answer to agent_send_start(). */
void agent_take_hello(struct agent *agent, const struct agent_hello *hello, uint64_t time);

/* Counts what was sent and can not be taken, and what was lost, */
void agent_refuse(struct agent *agent);
void agent_count_lost(struct agent *agent, uint64_t count);

/* and tells it to who reads the ring: nothing before the round's time will come any more; */
void agent_tell_round(struct agent *agent, uint64_t guest_time);
/* lines of JIT maps may be missing, until they are told from their beginning. */
void agent_tell_jit_maps_unknown(struct agent *agent, uint64_t guest_time);

/* Does so much wait for an exchange of clocks that one is due at once? */
bool agent_holds_much(const struct agent *agent);

/* What was told behind silence has its time as soon as what is told again and again. */
void agent_hasten_ping(struct agent *agent);

/* Sends a ping, or puts it off where the guest had too many. */
void agent_ping(struct agent *agent, uint64_t time);

/* MESSAGE has AGENT_PONG_MIN bytes at least. It may end the session: the guest's clock was set. */
void agent_take_pong(struct agent *agent, const struct agent_message *message, uint64_t time);

/* Takes all that the stream has whole. */
void agent_take_messages(struct agent *agent);

#endif
