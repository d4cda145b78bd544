/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/cli/record_archive.h"

struct arguments {
	struct profile_arguments input;
	char *output; /* NULL: beside the recording */
};

static const char summary[] = "Writes the symbols that a recording needs into one file."
			      "\v"
			      "Examples:\n"
			      "  kvmscope archive\n"
			      "      the symbols of ./perf.data in perf.data.tar.gz\n"
			      "  scp perf.data perf.data.tar.gz other:\n"
			      "      report and export on that machine read both\n"
			      "  tar -xf perf.data.tar.gz -C ~/.debug\n"
			      "      for perf";

static const struct option_row rows[] = {
	{ "output", "FILE", "The archive (the recording's name with .tar.gz)", OPTION_TEXT,
	  .offset = offsetof(struct arguments, output), .letter = 'o' },
	{ 0 },
};

static int write_archive(const struct arguments *arguments)
{
	char path[PATH_MAX];

	if (arguments->output)
		snprintf(path, sizeof(path), "%s", arguments->output);
	else if (profile_arguments_archive(path, arguments->input.options.input))
		return -EINVAL;
	return record_archive_write(&arguments->input, path, false);
}

int command_archive(int argc, char **argv)
{
	struct arguments arguments = { .output = NULL };
	const struct option_group groups[] = { { .rows = rows, .target = &arguments },
					       profile_arguments_options(&arguments.input),
					       { 0 } };
	const struct option_command table = { .name = "kvmscope archive",
					      .doc = summary,
					      .groups = groups,
					      .words = "[FILE]",
					      .word = profile_arguments_word,
					      .context = &arguments.input };
	int error;

	arguments.input.ignore_archive = true;
	if (option_table_parse(&table, argc, argv))
		return command_failed();
	error = write_archive(&arguments);
	profile_arguments_free(&arguments.input);
	return error ? command_failed() : EXIT_OK;
}
