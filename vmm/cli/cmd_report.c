/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confined_reader.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/cli/screen.h"
#include "vmm/report/locks.h"
#include "vmm/report/report_rows.h"

#define DEFAULT_KEYS (REPORT_SYMBOL | REPORT_IMAGE)

struct arguments {
	struct profile_arguments input;
	struct report_options report;
	bool json, no_pager, locks;
	bool paged, colored;
	enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color;
};

static const char summary[] =
	"Shows where a recorded guest spent its time."
	"\v"
	"Examples:\n"
	"  kvmscope report [FILE]\n"
	"      the functions in FILE or ./perf.data, busiest first\n"
	"  kvmscope report --children -n 20\n"
	"      20 functions with everything that they called\n"
	"  kvmscope report -g\n"
	"      callers of each function as a tree; with --children, what it called\n"
	"  kvmscope report --sort vcpu\n"
	"      how busy each vCPU was\n"
	"  kvmscope report --sort comm,symbol\n"
	"      which of the guest's processes spends time where\n"
	"  kvmscope report --sort app,image,symbol\n"
	"      the same by program, its libraries apart\n"
	"  kvmscope report --sort cgroup\n"
	"      which service or container of the guest\n"
	"  kvmscope report --time 10%/2\n"
	"      the second tenth of the recording\n"
	"  kvmscope report --event mem:schedule:x\n"
	"      who executed a watched function\n"
	"  kvmscope report --locks\n"
	"      lock holders that had no CPU while other vCPUs waited for them\n"
	"  kvmscope report --json | jq '.events[0].rows[0]'\n"
	"\n"
	"Kernel symbols are in perf's build-id cache, where kvmscope run and attach store them. "
	"kvmscope prints an address rather than guess a name.";

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

static int parse_sort(void *target, char *list)
{
	static const char *const names[] = { "symbol", "image", "vcpu",   "app",       "comm",
					     "pid",    "tid",   "cgroup", "container", NULL };
	unsigned int *keys_chosen = &((struct arguments *)target)->report.keys, key;
	char *rest = NULL;

	*keys_chosen = 0;
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		key = find_key(name);
		if (!key)
			return option_choice("--sort", name, names);
		*keys_chosen |= key;
	}
	return *keys_chosen ? 0 : error_set(-EINVAL, "--sort needs at least one key");
}

static int parse_percent(void *target, char *text)
{
	char *end;
	double value = strtod(text, &end);

	((struct arguments *)target)->report.percent_limit = value;
	/* Not +5, 0x5 or inf, which strtod() reads. */
	if (end == text || text[strspn(text, "0123456789.")] || value > 100)
		return error_set(-EINVAL, "--percent-limit %s: it must be a number from 0 to 100",
				 text);
	return 0;
}

static const char *const colors[] = { "auto", "always", "never", NULL };

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row rows[] = {
	{ "children", NULL, "Count callees for their callers, too; sort by that", OPTION_SET,
	  AT(report.children) },
	{ "call-graph", NULL, "Print a tree of callers (callees with --children)", OPTION_SET,
	  AT(report.call_trees), .letter = 'g' },
	{ "sort", "KEY[,KEY...]", "Columns: symbol, app, comm, ... (symbol,image)", OPTION_PARSE,
	  .letter = 's', .parse = parse_sort },
	{ "locks", NULL, "Show lock holders that had no CPU while others waited", OPTION_SET,
	  AT(locks) },
	{ "limit", "ROWS", "Show only the first ROWS rows", OPTION_NUMBER, AT(report.limit),
	  .letter = 'n', .low = 1, .high = UINT_MAX },
	{ "percent-limit", "PERCENT", "Show no rows and branches below PERCENT", OPTION_PARSE,
	  .parse = parse_percent },
	{ "json", NULL, "Print one JSON object instead of a table", OPTION_SET, AT(json) },
	{ "color", "WHEN", "auto, always, never (auto)", OPTION_CHOICE, AT(color),
	  .choices = colors },
	{ "no-pager", NULL, "Do not start PAGER (less -FRX) on a terminal", OPTION_SET,
	  AT(no_pager) },
	{ 0 },
};

static int check(void *target)
{
	const struct arguments *arguments = target;

	if (arguments->locks && (arguments->report.call_trees || arguments->report.children ||
				 arguments->report.keys != DEFAULT_KEYS))
		return error_set(-EINVAL,
				 "--locks has rows of its own: omit --sort, --children, -g");
	if (arguments->locks &&
	    (arguments->input.options.event || arguments->input.options.vcpu >= 0))
		return error_set(-EINVAL,
				 "--locks needs all events and vCPUs: omit --event, --vcpu");
	return arguments->json && arguments->report.call_trees
		       ? error_set(-EINVAL,
				   "--json has no call trees: give only one of --json and -g")
		       : 0;
}

static bool uses_color(const struct arguments *arguments)
{
	return arguments->color == COLOR_AUTO ? screen_has_color()
					      : arguments->color == COLOR_ALWAYS;
}

/* As in perf, events without samples are not shown, except watches. */
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
	return report_print_text(reports, count, stdout, arguments->colored);
}

static int print(const struct arguments *arguments, const struct profile *profile)
{
	/* A file without any event gets one empty table. */
	size_t events = profile_event_count(profile) ? profile_event_count(profile) : 1, count = 0;
	struct report **reports = calloc(events, sizeof(struct report *));
	struct report_options options = arguments->report;
	int error = reports ? 0 : error_set(-ENOMEM, "no memory for the report");

	for (options.event = 0; options.event < events && !error; options.event++) {
		if (!is_shown(arguments, profile, options.event))
			continue;
		error = report_build(&reports[count], profile, &options);
		count += !error;
	}
	if (!error)
		error = print_all(arguments, reports, count);
	while (reports && count)
		report_free(reports[--count]);
	free(reports);
	return error;
}

static int print_locks(const struct arguments *arguments, const struct profile *profile)
{
	struct locks locks;
	int error = locks_find(&locks, profile);

	if (error)
		return error;
	error = arguments->json ? locks_print_json(&locks, arguments->report.limit, stdout)
				: locks_print_text(&locks, arguments->report.limit, stdout);
	locks_free(&locks);
	return error;
}

/* Without a pager: as many rows as fit on the terminal, with the lines above and below them. */
static void limit_to_screen(struct report_options *report, bool paged)
{
	enum { OTHER_LINES = 12, FEWEST = 10 };
	unsigned int lines = screen_lines();

	report->columns = screen_columns();
	if (paged || !lines || report->limit || report->percent_limit > 0 || report->call_trees)
		return;
	report->screen = true;
	report->limit = lines > OTHER_LINES + FEWEST ? lines - OTHER_LINES : FEWEST;
}

static int load_and_print(void *context)
{
	struct arguments *arguments = context;
	struct profile *profile;
	int error;

	profile_arguments_unpack(&arguments->input);
	error = profile_load(&profile, &arguments->input.options);
	if (error)
		return error;
	if (!profile_samples(profile) && !arguments->json)
		log_warning("%s", profile_arguments_why_empty(&arguments->input));
	error = arguments->locks ? print_locks(arguments, profile) : print(arguments, profile);
	profile_free(profile);
	return error;
}

/* The pager is started first: the sandbox cannot start it. */
static int show(struct arguments *arguments)
{
	int error = arguments->paged ? screen_pager_start() : 0, end = 0;
	char message[ERROR_MESSAGE_SIZE];

	if (error)
		return error;
	error = confined_read(&arguments->input, NULL, NULL, NULL, load_and_print, arguments);
	snprintf(message, sizeof(message), "%s", error_message());
	if (arguments->paged)
		end = screen_pager_end();
	if (end)
		return end;
	/* A pager may be closed early. */
	return error && error != -EPIPE ? error_set(error, "%s", message) : 0;
}

int command_report(int argc, char **argv)
{
	struct arguments arguments = { .report.keys = DEFAULT_KEYS };
	const struct option_group groups[] = {
		{ .rows = rows, .target = &arguments, .check = check },
		profile_arguments_options(&arguments.input),
		{ 0 }
	};
	const struct option_command table = { .name = "kvmscope report",
					      .doc = summary,
					      .groups = groups,
					      .words = "[FILE]",
					      .word = profile_arguments_word,
					      .context = &arguments.input };
	int error;

	if (option_table_parse(&table, argc, argv))
		return command_failed();
	arguments.input.options.threads = arguments.report.keys & REPORT_TID;
	arguments.input.options.leaves_only =
		!arguments.report.children && !arguments.report.call_trees && !arguments.locks;
	arguments.input.options.samples = arguments.locks;
	arguments.paged = !arguments.no_pager && screen_has_pager();
	if (!arguments.json)
		limit_to_screen(&arguments.report, arguments.paged);
	arguments.colored = uses_color(&arguments);
	error = show(&arguments);
	profile_arguments_free(&arguments.input);
	return error ? profile_arguments_failed(error) : EXIT_OK;
}
