// SPDX-License-Identifier: Apache-2.0
/* kvmscope doctor: what this host can do, each row tried out, and what is lost where one fails. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/doctor_attach.h"
#include "vmm/cli/screen.h"
#include "vmm/machine/host_probe.h"

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
		return "No guest can be run here; the first row says why.";
	if (!probe_can_boot_linux(rows, count))
		return "This host's KVM can not boot Linux. Guests of your own that stay in user mode can be "
		       "profiled; for Linux use a machine with VT-x or AMD-V passed through.";
	return "Linux guests can be booted and profiled on this host.";
}

/* Of VMs that run already; the way by QEMU's monitor is the last. */
static const char *attach_verdict(const struct probe_row *attach, size_t count)
{
	size_t works = 0;

	while (works < count && attach[works].state != PROBE_YES)
		works++;
	if (works == count)
		return "VMs that run already can not be profiled with the rights that you have here.";
	if (works == count - 1)
		return "Of VMs that run already those can be profiled that QEMU's monitor or libvirt tells you of: "
		       "kvmscope attach --domain or --qmp.";
	return "VMs that run already can be profiled: kvmscope attach lists them.";
}

static json_t *row_json(const struct probe_row *row)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s?, s:s?}", "id", row->id, "name", row->name,
			 "state", state_words[row->state], "detail", row->detail,
			 "needed_for_linux", row->for_linux, "lost",
			 row->state == PROBE_YES ? NULL : row->lost, "takes", row->takes);
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
	report = json_pack("{s:s, s:b, s:s, s:o}", "version", KVMSCOPE_VERSION, "can_boot_linux",
			   can_boot, "verdict", verdict(rows, count), "rows", list);
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

/* From column INDENT on, whole words up to the end of a line of COLUMNS; 0: the line has no end. */
static void print_words(const char *text, unsigned int indent, unsigned int columns)
{
	unsigned int column = indent;

	while (*text) {
		size_t length = strcspn(text, " ");

		if (columns && column > indent && column + 1 + length > columns)
			column = (unsigned int)printf("\n%*s", (int)indent, "") - 1;
		column += (unsigned int)printf("%s%.*s", column > indent ? " " : "", (int)length,
					       text);
		text += length + (text[length] == ' ');
	}
	putchar('\n');
}

/* What was found stands beside the name, or below it where there is no room for it. */
enum { NAME_WIDTH = 36, BESIDE = 8 + NAME_WIDTH + 2, BELOW = 8, NARROW = 110 };

/* A line more of a row. */
static void print_more(const char *what, const char *text, unsigned int indent)
{
	char line[256];

	snprintf(line, sizeof(line), "%s: %s", what, text);
	printf("%*s", (int)indent, "");
	print_words(line, indent, screen_columns());
}

static void print_row(const struct probe_row *row, bool colours)
{
	unsigned int columns = screen_columns();
	bool below = columns && columns < NARROW;
	unsigned int indent = below ? BELOW : BESIDE;

	printf("%s%-6s%s  %-*s", colours ? colour(row->state) : "", state_words[row->state],
	       colours ? "\033[0m" : "", below ? 0 : NAME_WIDTH + 2, row->name);
	if (below)
		printf("\n%*s", BELOW, "");
	print_words(row->detail, indent, columns);
	if (row->takes)
		print_more("takes", row->takes, indent);
	if (row->state != PROBE_YES)
		print_more("lost", row->lost, indent);
}

static void print_verdict(const char *text, bool colours)
{
	printf("%s", colours ? "\033[1m" : "");
	print_words(text, 0, screen_columns());
	printf("%s", colours ? "\033[0m" : "");
}

static void print_table(const struct probe_row *rows, size_t count, const struct probe_row *attach,
			size_t attach_count)
{
	bool colours = screen_has_color();

	for (size_t i = 0; i < count; i++)
		if (!rows[i].untried)
			print_row(&rows[i], colours);
	for (size_t i = 0; i < attach_count; i++)
		print_row(&attach[i], colours);
	putchar('\n');
	print_verdict(verdict(rows, count), colours);
	print_verdict(attach_verdict(attach, attach_count), colours);
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
