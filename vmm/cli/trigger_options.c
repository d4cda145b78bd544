/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/trigger_options.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "shared/error.h"
#include "shared/parse_number.h"

/* ms. The scheduler's account is some ms late. */
#define STUCK_MIN 20
#define STUCK_MAX 3600000

/* Parses a number from LOW to HIGH, which UNIT may follow. */
static int parse_limit(const char *kind, const char *text, const char *unit, unsigned int low,
		       unsigned int high, uint64_t *value)
{
	const char *end = text ? parse_decimal(text, high, value) : NULL;

	if (!end || (*end && strcmp(end, unit) != 0) || *value < low)
		return error_set(
			-EINVAL,
			"--trigger %s=%s: it must be a number from %u to %u, with or without '%s'",
			kind, text ? text : "", low, high, unit);
	return 0;
}

static int add_stuck(struct trigger_options *options, const char *text)
{
	uint64_t value = 0;
	int error = parse_limit("stuck", text, "ms", STUCK_MIN, STUCK_MAX, &value);

	if (!error)
		options->limits.stuck = (unsigned int)value;
	return error;
}

static int add_exits(struct trigger_options *options, const char *text)
{
	uint64_t value = 0;
	int error = parse_limit("exits", text, "/s", 1, UINT32_MAX, &value);

	if (!error)
		options->limits.exits = value;
	return error;
}

static int add_steal(struct trigger_options *options, const char *text)
{
	uint64_t value = 0;
	int error = parse_limit("steal", text, "%", 1, 99, &value);

	if (!error)
		options->limits.steal = (unsigned int)value;
	return error;
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

static const struct {
	const char *name;
	int (*add)(struct trigger_options *options, const char *text);
} kinds[] = {
	{ "stuck", add_stuck },
	{ "exits", add_exits },
	{ "steal", add_steal },
	{ "console", add_console },
};

int trigger_options_add(struct trigger_options *options, const char *text)
{
	size_t length = strcspn(text, "=");
	const char *limit = text[length] ? text + length + 1 : NULL;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (length == strlen(kinds[i].name) && !strncmp(text, kinds[i].name, length))
			return kinds[i].add(options, limit);
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
