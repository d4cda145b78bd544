/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/report/flame_graph.h"
#include "vmm/report/folded.h"
#include "vmm/report/pprof.h"
#include "vmm/report/script.h"

enum format { FORMAT_NONE, FORMAT_FOLDED, FORMAT_HTML, FORMAT_PPROF, FORMAT_SCRIPT };

struct arguments {
	struct profile_arguments input;
	enum format format;
	enum folded_group by;
	const char *output; /* NULL: standard output */
};

/* Of options without a letter. */
enum { KEY_BY = 0x100 };

static const struct argp_option options[] = {
	{ "format", 'f', "FORMAT", 0,
	  "html: one page with a flame graph; folded: stacks for flamegraph.pl; pprof: for go tool pprof and Pyroscope; script: every sample as text, as perf script has it",
	  0 },
	{ "by", KEY_BY, "cgroup|container", 0,
	  "Of html and folded: the outermost frame is the guest's service or container, then come its processes",
	  0 },
	{ "output", 'o', "FILE", 0, "Write to FILE instead of standard output", 0 },
	{ 0 },
};

static const char summary[] =
	"Writes a recording in other forms."
	"\v"
	"Examples:\n"
	"  kvmscope export --format html -o flame.html\n"
	"      open it in any browser; it needs no network\n"
	"  kvmscope export --format folded | flamegraph.pl > flame.svg\n"
	"  kvmscope export --by container -o flame.html\n"
	"      which container of the guest runs what\n"
	"  kvmscope export --format html --event mem:schedule:x -o callers.html\n"
	"  kvmscope export -o guest.pb.gz && go tool pprof -http=: guest.pb.gz\n"
	"  kvmscope export --format script -i other.data | less\n"
	"\n"
	"Without --format, the end of the output's name decides: .html, .folded, .pb.gz, .txt.";

static const struct {
	const char *name, *suffix;
	enum format format;
} formats[] = {
	{ "html", ".html", FORMAT_HTML },
	{ "folded", ".folded", FORMAT_FOLDED },
	{ "pprof", ".pb.gz", FORMAT_PPROF },
	{ "script", ".txt", FORMAT_SCRIPT },
};

static enum format format_named(const char *name)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(formats[i].name, name))
			return formats[i].format;
	return FORMAT_NONE;
}

static enum format format_of_file(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		size_t suffix = strlen(formats[i].suffix);

		if (length > suffix && !strcmp(path + length - suffix, formats[i].suffix))
			return formats[i].format;
	}
	return FORMAT_NONE;
}

static bool parse_group(const char *name, enum folded_group *by)
{
	if (!strcmp(name, "cgroup"))
		*by = FOLDED_BY_CGROUP;
	else if (!strcmp(name, "container"))
		*by = FOLDED_BY_CONTAINER;
	return *by;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &arguments->input;
		return 0;
	case 'f':
		arguments->format = format_named(value);
		if (!arguments->format)
			argp_error(state, "--format is html, folded, pprof or script, not '%s'",
				   value);
		return 0;
	case KEY_BY:
		if (!parse_group(value, &arguments->by))
			argp_error(state, "--by is cgroup or container, not '%s'", value);
		return 0;
	case 'o':
		arguments->output = output_path_is_standard(value) ? NULL : value;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->format)
			arguments->format = format_of_file(arguments->output);
		if (!arguments->format)
			argp_error(state,
				   "say which form by --format html, folded, pprof or script");
		if (arguments->by && arguments->format != FORMAT_HTML &&
		    arguments->format != FORMAT_FOLDED)
			argp_error(state, "--by is for html and folded; pprof has labels of both");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int write_profile(const struct profile *profile, const struct arguments *arguments, FILE *to)
{
	switch (arguments->format) {
	case FORMAT_HTML:
		return flame_graph_write(profile, arguments->by, to);
	case FORMAT_PPROF:
		return pprof_write(profile, NULL, to);
	default:
		return folded_write(profile, arguments->by, to);
	}
}

/* A report says so in its text. */
static void warn_of_unknown(const struct profile *profile)
{
	size_t images, unknown;

	profile_inlines(profile, &images, &unknown);
	if (unknown && unknown == images)
		log_warning(
			"there is no DWARF of any image: functions that were inlined are not shown apart");
}

static int export_profile(const struct arguments *arguments, FILE *to)
{
	struct profile_options wanted = arguments->input.options;
	struct profile *profile;
	int error;

	if (arguments->format == FORMAT_SCRIPT)
		return script_write(&wanted, to);
	/* Time and hits do not add up: one event, but where each has its own place. */
	if (!wanted.event && arguments->format != FORMAT_PPROF)
		wanted.event = "0";
	wanted.lines = wanted.inlined && arguments->format == FORMAT_PPROF;
	error = profile_load(&profile, &wanted);
	if (error)
		return error;
	if (!profile_samples(profile))
		log_warning("%s", profile_arguments_why_empty(&arguments->input));
	warn_of_unknown(profile);
	error = write_profile(profile, arguments, to);
	profile_free(profile);
	return error;
}

static int cannot_write(const struct arguments *arguments, int error)
{
	return error_set(-error, "cannot write %s: %s", arguments->output, strerror(error));
}

/* MODE as for fopen(3). */
static int write_file(const struct arguments *arguments, const char *path, const char *mode)
{
	FILE *to = fopen(path, mode);
	int error;

	if (!to)
		return cannot_write(arguments, errno);
	error = export_profile(arguments, to);
	if (fclose(to) && !error)
		error = cannot_write(arguments, errno);
	return error;
}

/* Beside the file, while it is written. */
static char partial[PATH_MAX];

/* What the signal then does is its default (SA_RESETHAND). */
static void end_by_signal(int signal)
{
	unlink(partial);
	raise(signal);
}

/* One that is ignored, as by nohup, stays so. */
static void remove_partial_on_signals(void)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	const struct sigaction end = { .sa_handler = end_by_signal, .sa_flags = SA_RESETHAND };
	struct sigaction before;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!sigaction(signals[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(signals[i], &end, NULL);
}

/* Writes beside the file and renames: one that is there already is replaced by a whole one or not
 * at all. */
static int replace_file(const struct arguments *arguments, const char *path)
{
	int error;

	if (snprintf(partial, sizeof(partial), "%s.partial", path) >= (int)sizeof(partial))
		return cannot_write(arguments, ENAMETOOLONG);
	remove_partial_on_signals();
	/* Of an export that was killed, or a link: it is not written through. */
	if (unlink(partial) && errno != ENOENT)
		return cannot_write(arguments, errno);
	error = write_file(arguments, partial, "wxe");
	if (!error && rename(partial, path))
		error = cannot_write(arguments, errno);
	if (error)
		unlink(partial);
	return error;
}

/* A pipe or a device is written to, not replaced; of a link that which it leads to is replaced. */
static int export_to_file(const struct arguments *arguments)
{
	char target[PATH_MAX];

	if (output_path_is_file(arguments->output, target))
		return replace_file(arguments, target);
	return write_file(arguments, arguments->output, "we");
}

int command_export(int argc, char **argv)
{
	static const struct argp_child children[] = { { &profile_argp, 0, "Input:", 1 }, { 0 } };
	static const struct argp argp = {
		.options = options, .parser = parse, .doc = summary, .children = children
	};
	struct arguments arguments = { 0 };
	char name[] = "kvmscope export";
	int error;

	argv[0] = name;
	argp_err_exit_status = EXIT_USAGE;
	profile_arguments_init(&arguments.input);
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	error = arguments.output ? export_to_file(&arguments) : export_profile(&arguments, stdout);
	profile_arguments_free(&arguments.input);
	return error ? command_failed() : EXIT_OK;
}
