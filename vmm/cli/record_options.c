/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/record_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/perf_data/output_path.h"

static int set_output(void *target, char *text)
{
	((struct record_options *)target)->output = output_path_is_standard(text) ? "-" : text;
	return 0;
}

static const char *const perspectives[] = { "guest", "host", NULL };

#define AT(field) .offset = offsetof(struct record_options, field)

const struct option_row record_rows[] = {
	{ "output", "FILE", "perf.data file; - for standard output (perf.data)", OPTION_PARSE,
	  .letter = 'o', .parse = set_output },
	{ "freq", "HZ", "Samples per second and vCPU, up to 10000 (999)", OPTION_NUMBER,
	  AT(frequency), .letter = 'F', .low = 1, .high = RECORD_FREQUENCY_MAX },
	{ "no-call-graph", NULL, "Record no call chains", OPTION_CLEAR, AT(callchains) },
	{ "perspective", "WHOSE", "View of the samples: guest, host (guest)", OPTION_CHOICE,
	  AT(perspective), .choices = perspectives },
	{ "compression-level", "LEVEL", "Compress with zstd, level 1 to 22 (1)", OPTION_NUMBER,
	  AT(compression), .letter = 'z', .optional = true, .low = 1, .high = 22 },
	{ "kallsyms", "FILE", "Kernel symbols: a copy of /proc/kallsyms", OPTION_TEXT,
	  AT(kallsyms) },
	{ "vmlinux", "FILE", "Kernel symbols: the guest's vmlinux", OPTION_TEXT, AT(vmlinux) },
	{ "btf", "FILE", "Kernel's BTF, if guest memory has none", OPTION_TEXT, AT(btf) },
	{ "no-buildid-cache", NULL, "Leave perf's build-id cache alone", OPTION_CLEAR,
	  AT(buildid_cache) },
	{ "no-disk-names", NULL, "Do not search the VM's disks for symbols", OPTION_CLEAR,
	  AT(disk_symbols) },
	{ "self-contained", NULL, "Write the symbols to FILE.tar.gz at the end", OPTION_SET,
	  AT(self_contained) },
	{ 0 },
};

const struct option_row record_message_rows[] = {
	{ "quiet", NULL, "No progress, no summary", OPTION_SET, AT(quiet), .letter = 'q' },
	{ "verbose", NULL, "More details", OPTION_SET, AT(verbose), .letter = 'v' },
	{ 0 },
};

int record_options_check(void *target)
{
	const struct record_options *options = target;

	if (!options->self_contained)
		return 0;
	if (!strcmp(options->output, "-"))
		return error_set(-EINVAL, "--self-contained needs a file: -o - is none");
	if (!options->buildid_cache)
		return error_set(-EINVAL, "--self-contained excludes --no-buildid-cache");
	return 0;
}

/* "kvmscope" and the words, with a space before each; NULL without memory. */
static char *join_words(int argc, char **argv)
{
	char *line = NULL;
	size_t size;
	FILE *text = open_memstream(&line, &size);

	if (!text)
		return NULL;
	fputs("kvmscope", text);
	for (int i = 0; i < argc; i++)
		fprintf(text, " %s", argv[i]);
	fclose(text);
	return line;
}

int record_options_init(struct record_options *options, int argc, char **argv)
{
	*options = (struct record_options){
		.output = "perf.data",
		.frequency = 999,
		.callchains = true,
		.buildid_cache = true,
		.disk_symbols = true,
		.command_line = join_words(argc, argv),
	};
	return options->command_line ? 0 : error_set(-ENOMEM, "no memory for the options");
}

void record_options_free(struct record_options *options)
{
	free(options->command_line);
}

void record_options_apply(const struct record_options *options, struct session_options *session)
{
	session->output = options->output;
	session->perspective = options->perspective;
	session->callchains = options->callchains;
	session->compression = options->compression;
	session->kallsyms = options->kallsyms;
	session->vmlinux = options->vmlinux;
	session->btf = options->btf;
	session->btf_hint = "--btf FILE gives it";
	session->command_line = options->command_line;
	session->buildid_cache = options->buildid_cache;
}

bool record_options_search_disks(const struct record_options *options)
{
	return options->disk_symbols && options->buildid_cache &&
	       options->perspective == PERSPECTIVE_GUEST;
}
