// SPDX-License-Identifier: Apache-2.0
/* kvmscope doctor: what this host can do, each row tried out, and what is lost where one fails. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/doctor_attach.h"
#include "vmm/machine/probe.h"

struct doctor_options {
	bool json;
};

static const struct argp_option option_list[] = {
	{ "json", 'j', NULL, 0, "Print JSON for programs", 0 },
	{ 0 },
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct doctor_options *options = state->input;

	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "doctor takes no arguments, but was given '%s'", argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	.options = option_list,
	.parser = parse_option,
	.doc = "Try out what this host can do: row by row, each in a throw-away VM or on this process, and what is "
	       "lost where one fails.\v"
	       "Exit status: 0 if Linux guests can be booted and profiled here, 4 if not.",
};

static const char *const state_words[] = {
	[PROBE_NO] = "no",
	[PROBE_PARTLY] = "partly",
	[PROBE_YES] = "yes",
};

/* Is there a KVM at all? The first row tells. */
static bool has_kvm(const struct probe_row *rows, size_t count)
{
	return count && rows[0].state == PROBE_YES;
}

static const char *verdict(const struct probe_row *rows, size_t count)
{
	if (!has_kvm(rows, count))
		return "No guest can be run on this host: it has no KVM that answers.";
	if (!probe_can_boot_linux(rows, count))
		return "This host's KVM can not boot Linux. Guests of your own that stay in user mode can be "
		       "profiled; for Linux use a machine with VT-x or AMD-V passed through.";
	return "Linux guests can be booted and profiled on this host.";
}

static json_t *row_json(const struct probe_row *row)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s?}", "id", row->id, "name", row->name, "state",
			 state_words[row->state], "detail", row->detail, "needed_for_linux", row->for_linux,
			 "lost", row->state == PROBE_YES ? NULL : row->lost);
}

static int print_json(const struct probe_row *rows, size_t count, const struct probe_row *attach,
		      size_t attach_count)
{
	bool can_boot = probe_can_boot_linux(rows, count);
	json_t *list = json_array();
	json_t *report;
	int error;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, row_json(&rows[i]));
	for (size_t i = 0; i < attach_count; i++)
		json_array_append_new(list, row_json(&attach[i]));
	report = json_pack("{s:s, s:b, s:s, s:o}", "version", KVMSCOPE_VERSION, "can_boot_linux", can_boot,
			   "verdict", verdict(rows, count), "rows", list);
	error = report ? json_dumpf(report, stdout, JSON_INDENT(2)) : -1;
	putchar('\n');
	json_decref(report);
	return error ? error_set(-EIO, "the JSON report can not be written to standard output") : 0;
}

static const char *colour(enum probe_state state)
{
	static const char *const colours[] = {
		[PROBE_NO] = "\033[31m",
		[PROBE_PARTLY] = "\033[33m",
		[PROBE_YES] = "\033[32m",
	};

	return colours[state];
}

static bool wants_colours(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && term && strcmp(term, "dumb") != 0;
}

static void print_row(const struct probe_row *row, bool colours)
{
	printf("%s%-6s%s  %-36s  %s\n", colours ? colour(row->state) : "", state_words[row->state],
	       colours ? "\033[0m" : "", row->name, row->detail);
	if (row->state != PROBE_YES)
		printf("%44s  lost: %s\n", "", row->lost);
}

static void print_table(const struct probe_row *rows, size_t count, const struct probe_row *attach,
			size_t attach_count)
{
	bool colours = wants_colours();

	for (size_t i = 0; i < count; i++)
		print_row(&rows[i], colours);
	for (size_t i = 0; i < attach_count; i++)
		print_row(&attach[i], colours);
	printf("\n%s%s%s\n", colours ? "\033[1m" : "", verdict(rows, count), colours ? "\033[0m" : "");
}

int command_doctor(int argc, char **argv)
{
	static char name[] = "kvmscope doctor";
	struct doctor_options options = { 0 };
	struct probe_row *rows, attach[DOCTOR_ATTACH_MAX];
	size_t count, attach_count;
	bool can_boot;

	argv[0] = name; /* what argp's messages start with */
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&parser, argc, argv, 0, NULL, &options);
	if (probe_all(&rows, &count))
		return command_failed();
	attach_count = doctor_attach(attach);
	can_boot = probe_can_boot_linux(rows, count);
	if (!options.json)
		print_table(rows, count, attach, attach_count);
	else if (print_json(rows, count, attach, attach_count))
		return command_failed();
	probe_free(rows, count);
	return can_boot ? EXIT_OK : EXIT_UNSUPPORTED;
}
