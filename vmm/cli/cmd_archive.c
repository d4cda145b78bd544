/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/report/profile_archive.h"

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
	struct profile_archive_counts counts;
	char path[PATH_MAX];

	if (arguments->output)
		snprintf(path, sizeof(path), "%s", arguments->output);
	else if (profile_arguments_archive(path, arguments->input.options.input))
		return -EINVAL;
	if (profile_archive(&arguments->input.options, path, &counts))
		return -EIO;
	if (counts.missing)
		log_warning("%zu of %zu kernels, programs and libraries have no symbols here",
			    counts.missing, counts.missing + counts.found);
	log_info("symbols of %zu kernels, programs and libraries, %.1f MiB, in %s", counts.found,
		 (double)counts.size / (1 << 20), path);
	return 0;
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
