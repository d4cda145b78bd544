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
#ifndef KVMSCOPE_AGENT_AGENT_HOST_H
#define KVMSCOPE_AGENT_AGENT_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/ring.h"
#include "shared/sideband_record.h"
#include "vmm/agent/agent_mappings.h"
#include "vmm/agent/agent_tables.h"
#include "vmm/guest/reported_tasks.h"

struct agent;

struct agent_options {
	/* Connected stream socket to the guest's port; the agent's from agent_start() on. -1:
	 * CONNECT makes it. */
	int fd;
	/*
	 * Makes such a socket where there is none (any more); a negative errno: there is no way
	 * now, and it is asked again a second later. The agent's thread. NULL: what ends is not
	 * connected anew.
	 */
	int (*connect)(void *context);
	void *context;
	struct ring *ring; /* written by the agent's thread alone until agent_stop() returns */
	bool tsc_known;
	uint64_t tsc_offset; /* the guest's TSC less the host's, on every vCPU; with tsc_known */
	const char *clocksources;      /* the host's, as TSC_CLOCKSOURCES, which NULL stands for */
	struct guest_account *account; /* of all that is kept; NULL: without a limit. Outlives the
					* agent and its tables
					*/
	bool mappings;                 /* agent_take_mappings() will be called */
};

struct agent_statistics {
	bool connected;    /* with the guest's port: whether anybody is behind it, SESSIONS tells */
	int unconnected;   /* else the error of the latest try */
	uint64_t sessions; /* begun by the guest's answer; 0: it has not answered yet */
	bool open;         /* the present one has been answered, and goes on */
	uint32_t version, features; /* of the latest, as in struct agent_hello, and the next two */
	int32_t error; /* negative errno; -EPROTONOSUPPORT: it speaks another version */
	char release[AGENT_RELEASE_MAX]; /* printable ASCII, NUL-terminated; others are '?' */
	bool snapshot_done;
	uint64_t records; /* taken; those that have no place in the host's time are lost */
	uint64_t refused; /* records and messages that could not be */
	/* That the guest's kernel dropped, or whose time is not known, of all sessions. */
	uint64_t lost;
	uint64_t unstable;     /* processes that the snapshot left out, */
	uint64_t cut;          /* and mappings or threads: as in struct agent_round */
	uint64_t clock_error;  /* ns: the guest's time is known within so much now, */
	uint64_t clock_unseen; /* that much of it as the host's clock is not its TSC (agent_clock.h)
				*/
	uint64_t vague; /* ns, all together: no answer told the time well, for a second and longer
			   each */
	uint64_t clock_jumps; /* times that its clock contradicted itself */
	bool tsc_used;        /* the clock is known by the TSC */
	struct agent_tables_statistics tables;
	int32_t tasks_error; /* negative errno of the guest's latest answer to agent_want_tasks(),
				but for -EBUSY; 0 */
};

/* Starts the thread. -ENOMEM, also where the account has less than AGENT_HELD_MAX; and the errors
 * of threads and eventfd(). */
int agent_start(struct agent **agent, const struct agent_options *options);

/* Any thread. */
void agent_statistics(struct agent *agent, struct agent_statistics *statistics);

/*
 * Asks for the symbols of IMAGE, which is copied, as soon as an agent that can tell them is there.
 * -EAGAIN: too many are waiting; -ENOMEM. Any thread, as the next one.
 */
int agent_want_symbols(struct agent *agent, const struct agent_image *image);

/*
 * The mappings of code with a build id that the guest told of and nobody took yet, with the guest's
 * time, the caller's to agent_mappings_free(). They come here as soon as they are told, and by the
 * ring when their time is known. More than AGENT_MAPPINGS_MAX bytes do not wait: it is no more than
 * that, however fast the guest tells others. Any thread.
 */
struct agent_mappings agent_take_mappings(struct agent *agent);

/* The oldest table that came, the caller's to agent_image_table_free(); NULL: there is none now. */
struct agent_image_table *agent_take_symbols(struct agent *agent);

/*
 * The same for the kernel's table: see agent_tables_want_kernel() and agent_tables_pop_kernel().
 * -EOPNOTSUPP: there is no agent now that can tell it; -EAGAIN: it has only just come, and who
 * looks himself may find what he needs by now: the next call asks. Any thread.
 */
int agent_want_kernel(struct agent *agent, uint64_t modules_hash);
struct agent_image_table *agent_take_kernel(struct agent *agent);

/*
 * Asks the guest for tasks whose values are known (reported_tasks.h), unless that has not been
 * answered yet. -EOPNOTSUPP: there is no agent now that can tell any. agent_take_tasks() has those
 * that came last, once: they live for AGENT_TASKS_LIFETIME_MS from a moment between the two calls
 * on. -EAGAIN: no answer has come since; another error: the guest's answer, once, or -EINVAL: it
 * can not be one. Any thread.
 */
int agent_want_tasks(struct agent *agent);
int agent_take_tasks(struct agent *agent, struct reported_tasks *told);

/*
 * Takes what has been received, ends the session and the thread. STATISTICS, which may be NULL,
 * gets the final counts. Other threads may go on asking: nobody answers. A second call is a no-op
 * but for the counts.
 */
void agent_end(struct agent *agent, struct agent_statistics *statistics);

/* The same, closes the socket and frees all. Tables that nobody took are lost. Works on NULL. */
void agent_stop(struct agent *agent, struct agent_statistics *statistics);

#endif
