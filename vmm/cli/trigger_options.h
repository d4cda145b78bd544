/* SPDX-License-Identifier: Apache-2.0 */
/* --trigger KIND=LIMIT: what else makes the flight recorder write. Main thread. */
#ifndef KVMSCOPE_CLI_TRIGGER_OPTIONS_H
#define KVMSCOPE_CLI_TRIGGER_OPTIONS_H

#include <regex.h>
#include <stddef.h>

#include "vmm/sample/watchdog.h"

#define TRIGGER_LINES_MAX 8

/* Zeroed: there are none. */
struct trigger_options {
	struct watchdog_limits limits;
	regex_t lines[TRIGGER_LINES_MAX]; /* that lines on the console are matched with */
	size_t line_count;
};

/* Adds what TEXT says; a limit that is there already is replaced. -EINVAL with the message for the
 * user. */
int trigger_options_add(struct trigger_options *options, const char *text);

/* Is any of the limits set? Else there is no need for a watchdog. */
bool trigger_options_have_limits(const struct trigger_options *options);

void trigger_options_free(struct trigger_options *options);

#endif
