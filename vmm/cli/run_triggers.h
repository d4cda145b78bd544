/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that fire the flight recorder's trigger, if there is one, or are logged: the guest's
 * kernel panics, and those of --trigger. Main thread:
 *
 * 	run_triggers_create() -> run_triggers_join() -> machine_create() -> run_triggers_start() ->
 * 	the guest runs and ends -> run_triggers_stop() -> run_triggers_destroy()
 */
#ifndef KVMSCOPE_CLI_RUN_TRIGGERS_H
#define KVMSCOPE_CLI_RUN_TRIGGERS_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/sample/trigger.h"

struct run_triggers;

/* OPTIONS must outlive it. -ENOMEM. */
int run_triggers_create(struct run_triggers **triggers, const struct run_options *options);

/* Adds hooks to the machine; existing ones are still called. */
void run_triggers_join(struct run_triggers *triggers, struct machine_options *machine);

/* Before machine_start(). TRIGGER (NULL without a flight recorder) must outlive the machine.
 * -ENOTSUP for a limit that this host cannot check, -ENOMEM. */
int run_triggers_start(struct run_triggers *triggers, struct machine *machine,
		       struct trigger *trigger);

/* After the guest has ended: nothing fires from here on. */
void run_triggers_stop(struct run_triggers *triggers);

/* Before TRIGGER is destroyed, when no vCPU runs. NULL is a no-op. */
void run_triggers_destroy(struct run_triggers *triggers);

#endif
