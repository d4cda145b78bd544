/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_triggers.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/parse_number.h"

/* ms. The scheduler's account is some ms late. */
#define STUCK_MIN 20
#define STUCK_MAX 3600000

/* Limits are numbers, which UNIT may follow. */
static const struct limit {
	const char *kind, *unit;
	unsigned int low, high;
	size_t offset; /* of an unsigned int in struct watchdog_limits */
} limits[] = {
	{ "stuck", "ms", STUCK_MIN, STUCK_MAX, offsetof(struct watchdog_limits, stuck) },
	{ "exits", "/s", 1, UINT32_MAX, offsetof(struct watchdog_limits, exits) },
	{ "steal", "%", 1, 99, offsetof(struct watchdog_limits, steal) },
};

static int add_limit(struct trigger_options *options, const struct limit *limit, const char *text)
{
	uint64_t number = 0;
	const char *end = text ? parse_decimal(text, limit->high, &number) : NULL;
	unsigned int value = (unsigned int)number;

	if (!end || (*end && strcmp(end, limit->unit) != 0) || number < limit->low)
		return error_set(
			-EINVAL,
			"--trigger %s=%s: it must be a number from %u to %u, with or without '%s'",
			limit->kind, text ? text : "", limit->low, limit->high, limit->unit);
	memcpy((char *)&options->limits + limit->offset, &value, sizeof(value));
	return 0;
}

/* Matching them can take exponential time, and the guest chooses the text. */
static bool has_back_reference(const char *expression)
{
	while ((expression = strchr(expression, '\\')) && expression[1]) {
		if (expression[1] >= '1' && expression[1] <= '9')
			return true;
		expression += 2;
	}
	return false;
}

static int add_console(struct trigger_options *options, const char *text)
{
	regex_t *line = &options->lines[options->line_count];
	char problem[128];
	int error;

	if (!text || !*text)
		return error_set(-EINVAL,
				 "--trigger console: the expression is missing: console=REGEX");
	if (options->line_count == TRIGGER_LINES_MAX)
		return error_set(-EINVAL, "--trigger console: at most %d are possible",
				 TRIGGER_LINES_MAX);
	if (has_back_reference(text))
		return error_set(
			-EINVAL,
			"--trigger console=%s: back references such as \\1 are not possible", text);
	error = regcomp(line, text, REG_EXTENDED | REG_NOSUB);
	if (error) {
		regerror(error, line, problem, sizeof(problem));
		return error_set(-EINVAL, "--trigger console=%s: %s", text, problem);
	}
	options->line_count++;
	return 0;
}

static bool is_kind(const char *kind, const char *text, size_t length)
{
	return length == strlen(kind) && !strncmp(text, kind, length);
}

int trigger_options_add(struct trigger_options *options, const char *text)
{
	size_t length = strcspn(text, "=");
	const char *value = text[length] ? text + length + 1 : NULL;

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		if (is_kind(limits[i].kind, text, length))
			return add_limit(options, &limits[i], value);
	if (is_kind("console", text, length))
		return add_console(options, value);
	return error_set(
		-EINVAL,
		"--trigger %s is unknown: there are stuck=MS, exits=N/s, steal=P%% and console=REGEX; "
		"panics, resets and triple faults always trigger",
		text);
}

bool trigger_options_have_limits(const struct trigger_options *options)
{
	return options->limits.stuck || options->limits.exits || options->limits.steal;
}

void trigger_options_free(struct trigger_options *options)
{
	while (options->line_count)
		regfree(&options->lines[--options->line_count]);
}

static void on_panic(void *context, bool crash_kernel)
{
	struct run_triggers *triggers = context;
	const char *detail = crash_kernel ? "it continues with its crash kernel" : "";

	trigger_fire(triggers->trigger, TRIGGER_PANIC, detail);
	if (!atomic_flag_test_and_set(&triggers->panic_logged))
		log_warning("the guest's kernel panicked%s%s", crash_kernel ? "; " : "", detail);
}

/* Fires once per line, however many expressions it matches. */
static void on_console_line(void *context, const char *line)
{
	const struct run_triggers *triggers = context;
	const struct trigger_options *options = triggers->options;

	if (triggers->next_line)
		triggers->next_line(triggers->next_line_context, line);
	for (size_t i = 0; i < options->line_count; i++) {
		if (regexec(&options->lines[i], line, 0, NULL, 0))
			continue;
		trigger_fire(triggers->trigger, TRIGGER_CONSOLE_LINE, line);
		return;
	}
}

void run_triggers_join(struct run_triggers *triggers, const struct trigger_options *options,
		       struct machine_options *machine)
{
	*triggers = (struct run_triggers){ .options = options };
	if (options->line_count) {
		triggers->next_line = machine->console_line;
		triggers->next_line_context = machine->console_line_context;
		machine->console_line = on_console_line;
		machine->console_line_context = triggers;
	}
	machine->panic = on_panic;
	machine->panic_context = triggers;
}

int run_triggers_start(struct run_triggers *triggers, struct machine *machine,
		       struct trigger *trigger)
{
	const struct trigger_options *options = triggers->options;

	triggers->trigger = trigger;
	if (!trigger_options_have_limits(options))
		return 0;
	return watchdog_create(&triggers->watchdog, machine_vm(machine), &options->limits, trigger);
}

void run_triggers_stop(struct run_triggers *triggers)
{
	watchdog_destroy(triggers->watchdog);
	triggers->watchdog = NULL;
}
