/* SPDX-License-Identifier: Apache-2.0 */
/* --trigger KIND=LIMIT: further triggers of the flight recorder. Main thread. */
#ifndef KVMSCOPE_CLI_TRIGGER_OPTIONS_H
#define KVMSCOPE_CLI_TRIGGER_OPTIONS_H

#include <regex.h>
#include <stddef.h>

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

#endif
