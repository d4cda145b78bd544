/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent of a session: connected with by the VM's own socket, and connected with anew as
 *often as it goes; what it tells becomes sideband in the session's rings, beside which page tables
 *its processes have (guest_spaces.h), and names of its programs in the build-id cache.
 *
 *	create -> start -> the collector runs, with rings, see and turn -> end -> the collector
 *stops -> destroy
 *
 * On the session's thread, but what says otherwise.
 */
#ifndef KVMSCOPE_SESSION_SESSION_AGENT_H
#define KVMSCOPE_SESSION_SESSION_AGENT_H

#include "shared/ring.h"
#include "vmm/agent/agent_host.h"
#include "vmm/attach/process.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/reported_tasks.h"
#include "vmm/symbols/build_id_cache.h"

#define SESSION_AGENT_RINGS 2

struct session_agent;

struct session_agent_options {
	const struct vmm_process *process;
	const char *path; /* of the socket, or "vsock:CID:PORT"; NULL: as its command line says */
	bool names;       /* of programs are asked for */
	struct guest_account *account;               /* of what it tells */
	const struct build_id_cache_location *place; /* to put them into; NULL: perf's */
};

/* -ENOMEM and the errors of rings. What OPTIONS point to outlives it. */
int session_agent_create(struct session_agent **agent, const struct session_agent_options *options);

/* The rings, for the collector to drain: SESSION_AGENT_RINGS; valid until session_agent_destroy().
 */
struct ring *const *session_agent_rings(struct session_agent *agent);

/* Begins to connect: before the collector. The errors of threads. */
int session_agent_start(struct session_agent *agent);

/* For the collector, on its thread. A file was mapped; */
void session_agent_see(struct session_agent *agent, const struct sideband_mmap *mapping);
/* the rings were looked at, KERNEL runs now in the guest that VIEW shows (NULL: it is not known).
 */
void session_agent_turn(struct session_agent *agent, const struct guest_kernel *kernel,
			const struct guest_view *view);
/* As collector_options.told and .tasks. */
struct reported_kernel *session_agent_kernel(struct session_agent *agent, uint64_t modules_hash);
int session_agent_tasks(struct session_agent *agent, bool ask, struct reported_tasks *told);

/* Any thread, from start to destroy. */
void session_agent_statistics(struct session_agent *agent, struct agent_statistics *statistics);

/* Ends the talk: all that was told is in the rings then. */
void session_agent_end(struct session_agent *agent);

/* Works on NULL. */
void session_agent_destroy(struct session_agent *agent);

#endif
