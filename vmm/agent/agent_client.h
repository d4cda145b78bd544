/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host side of the guest agent: a thread that talks to the agent over one stream socket
 * (docs/agent-protocol.md) and writes what the agent reports, in host time, as sideband records to
 * a ring. Parts: agent_session.c starts sessions, agent_pings.c synchronizes the clocks,
 * agent_messages.c handles messages, agent_timeline.c converts times, agent_client.c has the thread
 * and this interface.
 *
 * The guest is hostile: it can fill the ring and report wrong things about itself; it cannot block,
 * crash or grow the host. A guest that stops answering is asked to start a new session.
 */
#ifndef KVMSCOPE_AGENT_AGENT_CLIENT_H
#define KVMSCOPE_AGENT_AGENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/ring.h"
#include "shared/sideband_record.h"
#include "vmm/agent/agent_tables.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/reported_tasks.h"

/* Bytes of mappings that wait for agent_pop_mappings(). More, or more than the account allows, are
 * left out: they arrive through the ring as well. */
#define AGENT_MAPPINGS_MAX (1u << 20)

/* A queue of code mappings with a build id, in guest time. Zeroed: empty. */
struct agent_mappings {
	struct guest_account *account; /* charged for the queue; set by the owner */
	struct agent_mapping *first, *last;
	size_t bytes;
};

/* Queues a copy of RECORD if it is a mapping of code with a build id. */
void agent_mappings_add(struct agent_mappings *mappings, const struct sideband *record);

/* The oldest mapping, for the caller to free(), or NULL. Its time is the guest's. */
struct sideband_mmap *agent_mappings_pop(struct agent_mappings *mappings);

/* Frees the queue's memory and leaves it empty. */
void agent_mappings_free(struct agent_mappings *mappings);

struct agent;

struct agent_options {
	/* Connected stream socket to the guest's port, owned by the agent from agent_start() on.
	 * -1: CONNECT creates it. */
	int fd;
	/*
	 * Returns such a socket when there is none or the last one was closed. A negative errno:
	 * not possible now, called again a second later. Agent thread. NULL: no reconnection.
	 */
	int (*connect)(void *context);
	void *context;
	struct ring *ring; /* written only by the agent thread until agent_stop() returns */
	bool tsc_known;
	uint64_t tsc_offset;      /* guest TSC minus host TSC, on every vCPU; with tsc_known */
	const char *clocksources; /* the host's sysfs directory; NULL: TSC_CLOCKSOURCES */
	/* Charged for everything that is kept; NULL: no limit. Must outlive the agent and its
	 * tables. */
	struct guest_account *account;
	bool mappings; /* agent_pop_mappings() will be called */
};

struct agent_statistics {
	bool connected;    /* to the guest's port; SESSIONS shows whether an agent answers */
	int unconnected;   /* if not connected: negative errno of the latest attempt */
	uint64_t sessions; /* sessions that the guest answered */
	bool open;         /* the current session was answered */
	uint32_t version, features; /* of the latest session, as in struct agent_hello */
	int32_t error; /* as in struct agent_hello; -EPROTONOSUPPORT: another protocol version */
	char release[AGENT_RELEASE_MAX]; /* printable ASCII, NUL-terminated; other bytes are '?' */
	bool snapshot_done;
	uint64_t records; /* received; those whose time cannot be determined also count as lost */
	uint64_t refused; /* invalid records and messages */
	/* Records of all sessions that the guest's kernel dropped or whose time is unknown. */
	uint64_t lost;
	/* ns during which messages were not read because the guest had sent more than its share of
	 * the host's CPU time allows. Events that its kernel drops meanwhile count as lost. */
	uint64_t throttled;
	uint64_t unstable;        /* processes that the snapshot left out, */
	uint64_t cut;             /* and mappings or threads: as in struct agent_round */
	uint64_t clock_error;     /* ns: current error bound of the guest's time, */
	uint64_t clock_kvm_drift; /* of which this is AGENT_CLOCK_KVM_DRIFT or 0 */
	/* ns, total time during which no answer was precise, in stretches of a second or more */
	uint64_t imprecise;
	uint64_t clock_jumps; /* times that the guest's clock contradicted itself */
	bool tsc_used;        /* TSC readings narrow the clock's error */
	struct agent_tables_statistics tables;
	int32_t tasks_error; /* negative errno of the latest answer to agent_request_tasks() other
				than -EBUSY; 0: none */
};

/* Starts the thread. -ENOMEM, also if the account has less than AGENT_QUEUE_MAX left; errors of
 * pthread_create() and eventfd(). */
int agent_start(struct agent **agent, const struct agent_options *options);

/* Any thread. */
void agent_statistics(struct agent *agent, struct agent_statistics *statistics);

/*
 * Requests the symbols of IMAGE, which is copied, as soon as an agent can deliver them. -EAGAIN:
 * too many requests are queued; -ENOMEM. Any thread.
 */
int agent_request_symbols(struct agent *agent, const struct agent_image *image);

/*
 * Returns the code mappings that arrived since the last call, for agent_mappings_free(). They are
 * available before their host time is known, so that symbols of short-lived guests can be requested
 * early. Any thread.
 */
struct agent_mappings agent_pop_mappings(struct agent *agent);

/* The oldest table that arrived, for agent_image_table_free(), or NULL. Any thread. */
struct agent_image_table *agent_pop_symbols(struct agent *agent);

/*
 * The same for the kernel's table: see agent_tables_request_kernel() and agent_tables_pop_kernel().
 * -EOPNOTSUPP: no agent can deliver it now. -EAGAIN: first call of this session; the caller may
 * find the kernel itself by now, so only the next call sends the request. Any thread.
 */
int agent_request_kernel(struct agent *agent, uint64_t modules_hash);
struct agent_image_table *agent_pop_kernel(struct agent *agent);

/*
 * Requests reference tasks (reported_tasks.h) unless a request is pending. -EOPNOTSUPP: no agent
 * can deliver them now. Any thread.
 */
int agent_request_tasks(struct agent *agent);
/*
 * Returns the tasks that arrived last, once. They live for AGENT_TASKS_LIFETIME_MS from some moment
 * after the request. -EAGAIN: no new answer; -EINVAL: invalid answer; other errors are the guest's,
 * each reported once. Any thread.
 */
int agent_pop_tasks(struct agent *agent, struct reported_tasks *tasks);

/*
 * Handles what has been received, ends the session and joins the thread. STATISTICS gets the final
 * counts and may be NULL. Other threads may still call the functions above. A second call only
 * returns the counts.
 */
void agent_end(struct agent *agent, struct agent_statistics *statistics);

/* agent_end(), then closes the socket and frees everything, including unclaimed tables. NULL is a
 * no-op. */
void agent_stop(struct agent *agent, struct agent_statistics *statistics);

#endif
