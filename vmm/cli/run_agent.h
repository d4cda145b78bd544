/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent of a run (--agent): the initrd brings it into the guest, a socket pair connects
 * its virtio port with the session. Main thread:
 *
 *	run_agent_create() -> run_agent_attach() -> machine_create() -> run_agent_connect() ->
 *	session_start() -> ... -> run_agent_destroy()
 */
#ifndef KVMSCOPE_CLI_RUN_AGENT_H
#define KVMSCOPE_CLI_RUN_AGENT_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/session/session_agent.h"

struct run_agent;

/* -ENOMEM, and the errors of socketpair(). */
int run_agent_create(struct run_agent **agent, const struct run_options *options);

/* Sets the machine's port, and the initrd and command line that start the agent; valid until
 * run_agent_destroy(). */
void run_agent_attach(struct run_agent *agent, struct machine_options *machine);

/* The agent of VM, for its session, which consumes the descriptor. Once. */
struct session_agent_options run_agent_connect(struct run_agent *agent, const struct vm *vm);

/* Logs how well the agent of --agent worked. */
void run_agent_report(const struct run_options *options, const struct agent_statistics *statistics);

/* NULL is a no-op. */
void run_agent_destroy(struct run_agent *agent);

#endif
