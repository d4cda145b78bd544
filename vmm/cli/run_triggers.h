/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that fire the flight recorder's trigger, if there is one, or are logged: the guest's
 * kernel panics, and those of --trigger. Main thread:
 *
 *	run_triggers_join() -> machine_create() -> run_triggers_start() ->
 *	the guest runs and ends -> run_triggers_stop()
 */
#ifndef KVMSCOPE_CLI_RUN_TRIGGERS_H
#define KVMSCOPE_CLI_RUN_TRIGGERS_H

#include <stdatomic.h>

#include "vmm/cli/trigger_options.h"
#include "vmm/machine/machine.h"
#include "vmm/sample/trigger.h"

struct run_triggers {
	const struct trigger_options *options;
	struct trigger *trigger;   /* NULL: no flight recorder */
	struct watchdog *watchdog; /* NULL: no limit to watch */
	atomic_flag panic_logged;  /* once: a guest can panic any number of times */
	void (*next_line)(void *context, const char *line); /* the next user of console lines */
	void *next_line_context;
};

/* Initializes TRIGGERS and adds hooks to the machine, which still calls existing ones. OPTIONS must
 * outlive it. */
void run_triggers_join(struct run_triggers *triggers, const struct trigger_options *options,
		       struct machine_options *machine);

/* Before machine_start(). TRIGGER (NULL without a flight recorder) must outlive the machine.
 * -ENOTSUP for a limit that this host cannot check, -ENOMEM. */
int run_triggers_start(struct run_triggers *triggers, struct machine *machine,
		       struct trigger *trigger);

/* After the guest has ended: nothing fires from here on. Also on zeroed TRIGGERS. */
void run_triggers_stop(struct run_triggers *triggers);

#endif
