/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that fire the flight recorder's trigger, if there is one, or are logged: the guest's
 * kernel panics, and those of --trigger KIND=LIMIT. Main thread:
 *
 *	trigger_options_add() for each option -> run_triggers_join() -> machine_create() ->
 *	run_triggers_start() -> the guest runs and ends -> run_triggers_stop()
 */
#ifndef KVMSCOPE_CLI_RUN_TRIGGERS_H
#define KVMSCOPE_CLI_RUN_TRIGGERS_H

#include <regex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "vmm/machine/machine.h"
#include "vmm/sample/trigger.h"
#include "vmm/sample/watchdog.h"

#define TRIGGER_LINES_MAX 8

/* Zeroed: none. */
struct trigger_options {
	struct watchdog_limits limits;
	regex_t lines[TRIGGER_LINES_MAX]; /* matched with each console line */
	size_t line_count;
};

/* Adds the trigger TEXT; replaces a limit of the same kind. -EINVAL with the message. */
int trigger_options_add(struct trigger_options *options, const char *text);

/* True if any limit is set, so that a watchdog is needed. */
bool trigger_options_have_limits(const struct trigger_options *options);

void trigger_options_free(struct trigger_options *options);

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

/* Call it after the guest has ended. No trigger fires afterwards. Also on zeroed TRIGGERS. */
void run_triggers_stop(struct run_triggers *triggers);

#endif
