/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/option_number.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/cli/screen.h"
#include "vmm/report/report_rows.h"

struct arguments {
	struct profile_arguments input;
	struct report_options report;
	bool json;
	enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color;
};

enum { KEY_CHILDREN = 256, KEY_JSON, KEY_PERCENT_LIMIT, KEY_COLOR };

static const struct argp_option options[] = {
	{ "children", KEY_CHILDREN, NULL, 0,
	  "Count a function also for what it called, and order by that", 0 },
	{ "sort", 's', "KEY[,KEY...]", 0,
	  "What makes one row: symbol, image, vcpu, app (the program that a process runs, else its comm), comm, pid, tid, cgroup, container (default symbol,image; sym, dso and cpu mean the same as for perf)",
	  0 },
	{ "limit", 'n', "ROWS", 0, "Show the first ROWS rows only (on a terminal those that fit)",
	  0 },
	{ "percent-limit", KEY_PERCENT_LIMIT, "PERCENT", 0, "Show no rows below PERCENT", 0 },
	{ "json", KEY_JSON, NULL, 0, "Write one JSON object instead of a table", 0 },
	{ "color", KEY_COLOR, "WHEN", 0,
	  "auto (on a terminal, unless NO_COLOR is set), always or never", 0 },
	{ 0 },
};

static const char summary[] =
	"Shows where a recorded guest spent its time."
	"\v"
	"Examples:\n"
	"  kvmscope report\n"
	"      the functions in ./perf.data, busiest first\n"
	"  kvmscope report --children -n 20\n"
	"      who is behind it: 20 functions with all that they called\n"
	"  kvmscope report --sort vcpu\n"
	"      how busy each vCPU was\n"
	"  kvmscope report --sort comm,symbol\n"
	"      which of the guest's processes does what\n"
	"  kvmscope report --sort app,image,symbol\n"
	"      the same by program, its libraries apart\n"
	"  kvmscope report --sort cgroup\n"
	"      which service or container of the guest\n"
	"  kvmscope report --event mem:schedule:x\n"
	"      who executed a watched function\n"
	"  kvmscope report --json | jq '.events[0].rows[0]'\n"
	"\n"
	"Kernel names come from perf's build-id cache, where kvmscope run or attach has put them. "
	"A row is shown as an address where nothing says for certain what is there.";

static const struct {
	const char *name;
	enum report_key key;
} keys[] = {
	{ "symbol", REPORT_SYMBOL }, { "sym", REPORT_SYMBOL },    { "image", REPORT_IMAGE },
	{ "dso", REPORT_IMAGE },     { "vcpu", REPORT_VCPU },     { "cpu", REPORT_VCPU },
	{ "app", REPORT_APP },       { "comm", REPORT_COMM },     { "pid", REPORT_PID },
	{ "tid", REPORT_TID },       { "cgroup", REPORT_CGROUP }, { "container", REPORT_CONTAINER },
};

static unsigned int find_key(const char *name)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(keys[i].name, name))
			return keys[i].key;
	return 0;
}

static void parse_sort(const struct argp_state *state, char *list, unsigned int *chosen)
{
	char *rest = NULL;

	*chosen = 0;
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		unsigned int key = find_key(name);

		if (!key)
			argp_error(
				state,
				"--sort knows no '%s': symbol, image, vcpu, app, comm, pid, tid, cgroup, container",
				name);
		*chosen |= key;
	}
	if (!*chosen)
		argp_error(state, "--sort needs at least one key");
}

static double parse_percent(const struct argp_state *state, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	/* Neither +5 nor 0x5 nor inf, which strtod() reads. */
	if (end == text || text[strspn(text, "0123456789.")] || value > 100)
		argp_error(state, "'%s' is no percentage", text);
	return value;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &arguments->input;
		return 0;
	case KEY_CHILDREN:
		arguments->report.children = true;
		return 0;
	case 's':
		parse_sort(state, value, &arguments->report.keys);
		return 0;
	case 'n':
		arguments->report.limit = option_number(state, "--limit", value, 1, UINT_MAX);
		return 0;
	case KEY_PERCENT_LIMIT:
		arguments->report.percent_limit = parse_percent(state, value);
		return 0;
	case KEY_JSON:
		arguments->json = true;
		return 0;
	case KEY_COLOR:
		if (strcmp(value, "auto") != 0 && strcmp(value, "always") != 0 &&
		    strcmp(value, "never") != 0)
			argp_error(state, "--color is auto, always or never, not '%s'", value);
		arguments->color = *value == 'n'     ? COLOR_NEVER
				   : value[1] == 'l' ? COLOR_ALWAYS
						     : COLOR_AUTO;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static bool wants_color(const struct arguments *arguments)
{
	return arguments->color == COLOR_AUTO ? screen_has_color()
					      : arguments->color == COLOR_ALWAYS;
}

/* As perf, none that has no samples; but that a watch was not hit is worth a line. */
static bool is_shown(const struct arguments *arguments, const struct profile *profile,
		     size_t number)
{
	const struct profile_event *event = profile_event(profile, number);

	if (arguments->input.options.event)
		return number == profile_event_chosen(profile);
	return !number || arguments->json || event->samples || event->unit == PROFILE_HITS;
}

static int print_all(const struct arguments *arguments, struct report *const *reports, size_t count)
{
	if (arguments->json)
		return report_print_json(reports, count, stdout);
	return report_print_text(reports, count, stdout, wants_color(arguments));
}

static int print(const struct arguments *arguments, const struct profile *profile)
{
	/* Also of a file that has no event: then nothing is in it. */
	size_t events = profile_event_count(profile) ? profile_event_count(profile) : 1, count = 0;
	struct report **reports = calloc(events, sizeof(struct report *));
	struct report_options wanted = arguments->report;
	int error = reports ? 0 : error_set(-ENOMEM, "no memory for the report");

	for (wanted.event = 0; wanted.event < events && !error; wanted.event++) {
		if (!is_shown(arguments, profile, wanted.event))
			continue;
		error = report_build(&reports[count], profile, &wanted);
		count += !error;
	}
	if (!error)
		error = print_all(arguments, reports, count);
	while (reports && count)
		report_free(reports[--count]);
	free(reports);
	return error;
}

/* A terminal is given what fits on it, less the lines above and below the rows. */
static void limit_to_screen(struct report_options *report)
{
	enum { OTHER_LINES = 12, FEWEST = 10 };
	unsigned int lines = screen_lines();

	report->columns = screen_columns();
	if (!lines || report->limit || report->percent_limit > 0)
		return;
	report->screen = true;
	report->limit = lines > OTHER_LINES + FEWEST ? lines - OTHER_LINES : FEWEST;
}

int command_report(int argc, char **argv)
{
	static const struct argp_child children[] = { { &profile_argp, 0, "Input:", 1 }, { 0 } };
	static const struct argp argp = {
		.options = options, .parser = parse, .doc = summary, .children = children
	};
	struct arguments arguments = { .report.keys = REPORT_SYMBOL | REPORT_IMAGE };
	struct profile *profile;
	char name[] = "kvmscope report";
	int error;

	argv[0] = name;
	argp_err_exit_status = EXIT_USAGE;
	profile_arguments_init(&arguments.input);
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	arguments.input.options.threads = arguments.report.keys & REPORT_TID;
	arguments.input.options.leaves_only = !arguments.report.children;
	if (!arguments.json)
		limit_to_screen(&arguments.report);
	if (profile_load(&profile, &arguments.input.options))
		return command_failed();
	if (!profile_samples(profile) && !arguments.json)
		log_warning("%s", profile_arguments_why_empty(&arguments.input));
	error = print(&arguments, profile);
	profile_free(profile);
	profile_arguments_free(&arguments.input);
	/* A pager that was closed early has shown enough. */
	return error && error != -EPIPE ? command_failed() : EXIT_OK;
}
