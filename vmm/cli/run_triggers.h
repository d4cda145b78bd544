/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens in and around a guest that the user wants to know of: its
 * kernel panics, and what --trigger names. Each fires the flight recorder's
 * trigger, where there is one.
 *
 * run_triggers_create() -> run_triggers_join() -> machine_create() ->
 * run_triggers_start() -> the guest runs and ends -> run_triggers_stop() ->
 * run_triggers_destroy(), all on the main thread.
 */
#ifndef KVMSCOPE_CLI_RUN_TRIGGERS_H
#define KVMSCOPE_CLI_RUN_TRIGGERS_H

#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/sample/trigger.h"

struct run_triggers;

/* OPTIONS must outlive it. -ENOMEM. */
int run_triggers_create(struct run_triggers **triggers, const struct run_options *options);

/* Sets hooks of the machine, behind those that are set already. */
void run_triggers_join(struct run_triggers *triggers, struct machine_options *machine);

/*
 * Before machine_start(). TRIGGER (NULL without a flight recorder) must outlive
 * the machine. -ENOTSUP for what can not be watched on this host, -ENOMEM.
 */
int run_triggers_start(struct run_triggers *triggers, struct machine *machine,
		       struct trigger *trigger);

/* When the guest has ended: nothing is fired any more. */
void run_triggers_stop(struct run_triggers *triggers);

/* Before what TRIGGER belongs to is gone; no vCPU runs any more. Works on NULL. */
void run_triggers_destroy(struct run_triggers *triggers);

#endif
