/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confined_reader.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/report/flame_graph.h"
#include "vmm/report/folded.h"
#include "vmm/report/profile_diff.h"

struct arguments {
	struct profile_arguments input;
	const char *files[2]; /* as given; NULL: not given */
	enum profile_diff_order order;
	enum { FORMAT_TEXT, FORMAT_FOLDED, FORMAT_HTML } format;
};

static const char summary[] =
	"Compares two recordings, function by function."
	"\v"
	"Examples:\n"
	"  kvmscope diff before.data after.data\n"
	"      the share of each function before, and how much more it is after\n"
	"  kvmscope diff -f html before.data after.data > diff.html\n"
	"      a flame graph of both: red is more than before, blue is less\n"
	"  kvmscope diff\n"
	"      ./perf.data.old and ./perf.data, as perf diff\n"
	"\n"
	"One FILE is compared with perf.data.old. Rows are sorted by the size of the\n"
	"difference.";

static const char *const orders[] = { "delta", "baseline", NULL };
static const char *const formats[] = { "text", "folded", "html", NULL };

static const struct option_row rows[] = {
	{ "format", "text|folded|html", "A table, stacks for flamegraph.pl, or a page (text)",
	  OPTION_CHOICE, .offset = offsetof(struct arguments, format), .letter = 'f',
	  .choices = formats },
	{ "order", "delta|baseline", "Sort by the difference, or by the baseline (delta)",
	  OPTION_CHOICE, .offset = offsetof(struct arguments, order), .choices = orders },
	{ 0 },
};

static int add_file(void *context, char *text)
{
	struct arguments *arguments = context;

	if (arguments->files[1])
		return error_set(-EINVAL, "%s: only two recordings can be compared", text);
	arguments->files[arguments->files[0] ? 1 : 0] = text;
	return 0;
}

/* As perf diff: the last file is the new one. */
static int check(void *target)
{
	struct arguments *arguments = target;
	const char *const *files = arguments->files;

	if (files[0])
		arguments->input.options.input = files[1] ? files[1] : files[0];
	return 0;
}

static int load(struct profile **profile, const struct profile_arguments *input, bool leaves)
{
	struct profile_options options = input->options;
	int error;

	options.leaves_only = leaves;
	if (!options.event)
		options.event = "0";
	error = profile_load(profile, &options);
	if (!error && !profile_samples(*profile))
		log_warning("%s: %s", options.input, profile_arguments_why_empty(input));
	return error;
}

static int write_diff(const struct arguments *arguments, const struct profile *before,
		      const struct profile *after)
{
	switch (arguments->format) {
	case FORMAT_FOLDED:
		return folded_diff_write(before, after, stdout);
	case FORMAT_HTML:
		return flame_graph_diff_write(before, after, stdout);
	default:
		return profile_diff_print(before, after, arguments->order, stdout);
	}
}

struct inputs {
	struct arguments *arguments;
	struct profile_arguments baseline;
};

static int print_diff(void *context)
{
	struct inputs *inputs = context;
	struct arguments *arguments = inputs->arguments;
	struct profile *before = NULL, *after = NULL;
	int error;

	profile_arguments_unpack(&inputs->baseline);
	profile_arguments_unpack(&arguments->input);
	error = load(&before, &inputs->baseline, arguments->format == FORMAT_TEXT);
	if (!error)
		error = load(&after, &arguments->input, arguments->format == FORMAT_TEXT);
	if (!error) {
		const char *was = profile_event(before, profile_event_chosen(before))->name,
			   *is = profile_event(after, profile_event_chosen(after))->name;

		if (strcmp(was, is) != 0)
			log_warning("the events differ: %s and %s", was, is);
		error = write_diff(arguments, before, after);
	}
	profile_free(before);
	profile_free(after);
	return error;
}

static int diff(struct arguments *arguments)
{
	const char *const *files = arguments->files;
	struct inputs inputs = { .arguments = arguments };
	int error = profile_arguments_other(&inputs.baseline, &arguments->input,
					    files[1] ? files[0] : "perf.data.old");

	return error ? error
		     : confined_read(&arguments->input, &inputs.baseline, NULL, NULL, print_diff,
				     &inputs);
}

int command_diff(int argc, char **argv)
{
	struct arguments arguments = { .files = { NULL } };
	const struct option_group groups[] = { { NULL, rows, &arguments, check },
					       profile_arguments_options(&arguments.input),
					       { 0 } };
	const struct option_command table = { .name = "kvmscope diff",
					      .doc = summary,
					      .groups = groups,
					      .words = "[[BASELINE] FILE]",
					      .word = add_file,
					      .context = &arguments };
	int error = option_table_parse(&table, argc, argv);

	if (error)
		return command_failed();
	error = diff(&arguments);
	profile_arguments_free(&arguments.input);
	return error ? profile_arguments_failed(error) : EXIT_OK;
}
