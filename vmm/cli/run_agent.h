/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent of a run (--agent): brought into the guest by its initrd,
 * connected with this program by its virtio port, its word written into a ring.
 *
 * run_agent_create() -> run_agent_join() -> machine_create() ->
 * run_agent_start() -> the guest runs and ends -> run_agent_stop() ->
 * run_agent_destroy(), all on the main thread.
 */
#ifndef KVMSCOPE_CLI_RUN_AGENT_H
#define KVMSCOPE_CLI_RUN_AGENT_H

#include "shared/ring.h"
#include "shared/sideband_record.h"
#include "vmm/agent/agent_host.h"
#include "vmm/cli/run_options.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/reported_tasks.h"
#include "vmm/machine/machine.h"

struct run_agent;

/* -ENOMEM, and the errors of socketpair() and ring_create(). */
int run_agent_create(struct run_agent **agent, const struct run_options *options);

/* Sets the machine's port, and what starts the agent in the guest; valid until run_agent_destroy().
 */
void run_agent_join(struct run_agent *agent, struct machine_options *machine);

/* Of the machine's VM, before machine_start(). The errors of agent_start(). */
int run_agent_start(struct run_agent *agent, const struct vm *vm);

/* The ring of struct sideband, for the collector to drain; the agent's until run_agent_destroy().
 */
struct ring *run_agent_ring(struct run_agent *agent);

/* Of all that is kept of what it tells; the agent's until run_agent_destroy(). */
struct guest_account *run_agent_account(struct run_agent *agent);

/* Names of what is mapped are asked for. The collector's thread, as the next one. */
void run_agent_see_mapping(struct run_agent *agent, const struct sideband_mmap *mapping);

/* As collector_options.told and .tasks. */
struct reported_kernel *run_agent_kernel(struct run_agent *agent, uint64_t modules_hash);
int run_agent_tasks(struct run_agent *agent, bool ask, struct reported_tasks *told);

/* Puts names that came to where they are looked for. */
void run_agent_turn(struct run_agent *agent);

/* When the guest has ended: everything that it told is in the ring then. Says what the user should
 * know of it. */
void run_agent_stop(struct run_agent *agent);

/* Works on NULL, at every point but while vCPUs run. */
void run_agent_destroy(struct run_agent *agent);

#endif
