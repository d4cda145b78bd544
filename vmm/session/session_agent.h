/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent of a session. What it reports becomes sideband records in the session's rings,
 * with the page tables of its processes (page_table_scan.h) where samples need them, and symbols of
 * user-space images in the build-id cache (symbol_requests.h).
 *
 *	create -> start -> the collector runs -> end -> the collector stops -> destroy
 *
 * The session's thread, unless a function says otherwise.
 */
#ifndef KVMSCOPE_SESSION_SESSION_AGENT_H
#define KVMSCOPE_SESSION_SESSION_AGENT_H

#include "shared/ring.h"
#include "vmm/agent/agent_client.h"
#include "vmm/attach/process.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/reported_tasks.h"
#include "vmm/symbols/build_id_cache.h"

struct session_agent;

struct session_agent_options {
	int fd; /* connected to the guest's port, consumed; -1: it is connected to, and again after
		 * each end */
	/* With fd -1: the VM's process, and its agent socket or "vsock:CID:PORT". NULL: as the
	 * process's command line says. */
	const struct vmm_process *process;
	const char *path;
	bool tsc_known; /* as in agent_options, with tsc_offset */
	uint64_t tsc_offset;
	size_t ring_size; /* bytes, a power of two: a snapshot of a busy guest has to fit while
			   * the collector is busy */
	bool scans_page_tables; /* samples know CR3, but not the process */
};

/*
 * ACCOUNT (NULL: no limit) is charged for what the agent reports, and limits the symbols that it
 * can put into CACHE (NULL: perf's) with SYMBOLS. OPTIONS are copied; what they point to must
 * outlive the agent. -ENOMEM, the errors of rings; options->fd is consumed in any case.
 */
int session_agent_create(struct session_agent **agent, const struct session_agent_options *options,
			 struct guest_account *account, bool symbols,
			 const struct build_id_cache_location *cache);

/* The sideband rings, for the collector; valid until session_agent_destroy(). */
struct ring *const *session_agent_rings(struct session_agent *agent, size_t *count);

/* Starts its thread; before the collector. The errors of agent_start(). */
int session_agent_start(struct session_agent *agent);

/* For the collector's callbacks, on its thread: a file was mapped; the rings were drained, and
 * KERNEL (NULL: unknown) runs in the guest that VIEW shows; collector_options.kernel_report and
 * .tasks. */
void session_agent_add_mapping(struct session_agent *agent, const struct sideband_mmap *mapping);
void session_agent_turn(struct session_agent *agent, const struct guest_kernel *kernel,
			const struct guest_view *view);
struct reported_kernel *session_agent_kernel(struct session_agent *agent, uint64_t modules_hash);
int session_agent_tasks(struct session_agent *agent, bool ask, struct reported_tasks *tasks);

/* Any thread, from start to destroy. */
void session_agent_count(struct session_agent *agent, struct agent_statistics *statistics);

/* Ends the agent's session: everything it reported is in the rings afterwards. */
void session_agent_end(struct session_agent *agent);

/* Logs which images have no symbols, and why. After the collector has stopped. */
void session_agent_report_symbols(const struct session_agent *agent);

/* NULL is a no-op. */
void session_agent_destroy(struct session_agent *agent);

/* At the end of a recording, for an agent that answered: logs how it detects processes, what was
 * lost, how well its clock was known, and what else it could not do. Any thread. */
void agent_report(const struct agent_statistics *statistics);

#endif
