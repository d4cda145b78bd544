/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of agent_client.h, shared by its parts. Everything here belongs to the agent thread,
 * except what LOCK protects.
 */
#ifndef KVMSCOPE_AGENT_AGENT_STATE_H
#define KVMSCOPE_AGENT_AGENT_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/clock_ns.h"
#include "shared/cpu_budget.h"
#include "shared/thread_check.h"
#include "vmm/agent/agent_client.h"
#include "vmm/agent/agent_jit.h"
#include "vmm/agent/agent_timeline.h"
#include "vmm/agent/agent_tsc.h"

/* ns without an answer after which the session is restarted. A guest may be paused for a while. */
#define AGENT_TIMEOUT (5000 * NS_PER_MS)

/* Guest CPUs whose records are tracked separately. */
#define AGENT_CPUS_MAX 512

/* Times are ns of CLOCK_MONOTONIC_RAW unless they are called guest times. */
struct agent {
	struct agent_options options;
	pthread_t thread;
	struct thread_check on_thread; /* the agent thread */
	bool ended;                    /* the thread was joined; of the caller of agent_end() */
	int stop_fd;                   /* eventfd: stop */
	struct agent_stream stream;
	struct cpu_budget work; /* for what the guest sent, over all sessions */
	uint64_t session;       /* number of the current one */
	uint64_t next_send;     /* AGENT_START or AGENT_PING; without a socket: next connect */
	uint64_t last_answer;   /* time of the latest answer, */
	uint64_t last_time;     /* and of the latest one that was a usable clock exchange */
	uint64_t received;      /* time of the latest message other than a pong */
	uint64_t answer_took;   /* ns that the latest pong of this session took */
	unsigned int pings;     /* sent in this session */
	uint64_t pings_paid;  /* rate limit over all sessions: advances by PING_INTERVAL per ping */
	size_t ping_bytes;    /* received since the latest ping */
	struct tsc_mark ping; /* clocks when the latest ping was sent */
	bool ping_open;       /* it is not answered yet */
	bool answered;        /* a ping of this session was: the agent accepts requests */
	bool has_events;      /* an event arrived since the latest ping */
	uint64_t session_lost; /* losses reported in this session, as in agent_round */
	uint64_t round;        /* guest time of the latest round, or of the session's start */
	/* For each guest CPU: guest time of its latest record (0: none), and whether that record
	 * reported that its full ring was emptied. */
	uint64_t written[AGENT_CPUS_MAX];
	bool emptied[AGENT_CPUS_MAX];
	bool tsc_usable; /* no TSC reading contradicted the offset yet */
	struct agent_timeline timeline;
	/* Best imprecise exchange since the latest good one; AFTER is 0: none. */
	struct agent_clock_exchange imprecise;
	uint64_t imprecise_until; /* end of the time counted in statistics.imprecise */
	struct agent_jit jit;     /* of this session */

	pthread_mutex_t lock;        /* protects the rest */
	bool kernel_delayed;         /* agent_request_kernel() was called in this session */
	bool tasks_requested;        /* agent_request_tasks() was called and not answered, */
	bool tasks_sent;             /* and its request was sent */
	struct reported_tasks tasks; /* latest answer that was not returned yet; count 0: none */
	int tasks_failed;            /* its negative errno, or 0 */
	struct agent_tables *tables;
	struct agent_mappings mappings;     /* with options.mappings */
	struct agent_statistics statistics; /* written by the agent thread only */
};

/* ns of CLOCK_MONOTONIC_RAW. Any thread. */
uint64_t agent_now(void);

/* Sends a message with at most an agent_start as payload. False if the socket is full, i.e. the
 * guest does not read; the caller tries again later. */
bool agent_send(struct agent *agent, enum agent_message_type type, const void *payload,
		size_t size);

/* False if only a part was sent: the stream is then out of step, so restart the session. */
bool agent_send_whole(struct agent *agent, const struct agent_message *message);

/* Sends AGENT_START. */
void agent_send_start(struct agent *agent, uint64_t time);

/* Ends an open session, drops its records without a host time, and starts another one. */
void agent_begin_session(struct agent *agent, uint64_t time);

/* Handles the guest's answer to AGENT_START. */
void agent_handle_hello(struct agent *agent, const struct agent_hello *hello, uint64_t time);

/* Counts an invalid message or record, and lost records. */
void agent_count_rejected(struct agent *agent);
void agent_count_lost(struct agent *agent, uint64_t count);

/* Writes SIDEBAND_ROUND: nothing before GUEST_TIME will follow. */
void agent_report_round(struct agent *agent, uint64_t guest_time);
/* Writes that JIT maps may lack lines until they are reported from their beginning. */
void agent_report_jit_maps_incomplete(struct agent *agent, uint64_t guest_time);

/* True if so many records wait for a clock exchange that a ping is due at once. */
bool agent_needs_ping(const struct agent *agent);

/* Moves the next ping forward if events arrived after a quiet time. */
void agent_hasten_ping(struct agent *agent);

/* Sends a ping, or defers it to respect the rate limit. */
void agent_ping(struct agent *agent, uint64_t time);

/* MESSAGE has at least AGENT_PONG_MIN bytes of payload. May end the session: the guest's clock was
 * set. */
void agent_handle_pong(struct agent *agent, const struct agent_message *message, uint64_t time);

/* Handles all complete messages of the stream. */
void agent_handle_messages(struct agent *agent);

#endif
