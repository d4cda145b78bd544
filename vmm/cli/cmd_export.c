/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confined_reader.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/report/firefox.h"
#include "vmm/report/flame_graph.h"
#include "vmm/report/folded.h"
#include "vmm/report/pprof.h"
#include "vmm/report/script.h"
#include "vmm/report/speedscope.h"
#include "vmm/report/sysroot.h"

enum format {
	FORMAT_HTML,
	FORMAT_FOLDED,
	FORMAT_PPROF,
	FORMAT_SPEEDSCOPE,
	FORMAT_FIREFOX,
	FORMAT_SCRIPT,
	FORMAT_SYSROOT, /* a directory */
	FORMAT_NONE,
};

struct arguments {
	struct profile_arguments input;
	enum format format;
	enum folded_group by;
	const char *output; /* NULL: standard output */
	bool keeps_old;     /* an existing output gets another name */
};

static const char summary[] =
	"Writes a recording in other forms."
	"\v"
	"Examples:\n"
	"  kvmscope export\n"
	"      a flame graph of ./perf.data in flame.html\n"
	"  kvmscope export --format html -o flame.html other.data\n"
	"      open it in any browser; it needs no network\n"
	"  kvmscope export --format folded | flamegraph.pl > flame.svg\n"
	"  kvmscope export --by container -o flame.html\n"
	"      which container of the guest runs what\n"
	"  kvmscope export --format html --event mem:schedule:x -o callers.html\n"
	"  kvmscope export -o guest.pb.gz && go tool pprof -http=: guest.pb.gz\n"
	"  kvmscope export -o guest.speedscope.json && speedscope guest.speedscope.json\n"
	"  kvmscope export -o guest.firefox.json\n"
	"      open it in profiler.firefox.com\n"
	"  kvmscope export --format script -i other.data | less\n"
	"  kvmscope export --format sysroot -o symbols\n"
	"      a directory with the symbols for hotspot\n"
	"\n"
	"Without --format the output's suffix decides: .html, .folded, .pb.gz,\n"
	".speedscope.json, .firefox.json, .txt.";

static const char *const formats[] = { "html",    "folded", "pprof",   "speedscope",
				       "firefox", "script", "sysroot", NULL };
static const char *const suffixes[] = { ".html",         ".folded", ".pb.gz", ".speedscope.json",
					".firefox.json", ".txt",    "/" };

static enum format format_of_file(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	for (enum format format = 0; format < FORMAT_NONE; format++) {
		size_t suffix = strlen(suffixes[format]);

		if (length > suffix && !strcmp(path + length - suffix, suffixes[format]))
			return format;
	}
	return FORMAT_NONE;
}

static int set_group(void *target, char *name)
{
	static const char *const groups[] = { "cgroup", "container", NULL };
	int group = option_choice("--by", name, groups);

	if (group < 0)
		return group;
	((struct arguments *)target)->by = group ? FOLDED_BY_CONTAINER : FOLDED_BY_CGROUP;
	return 0;
}

static int set_output(void *target, char *path)
{
	((struct arguments *)target)->output = output_path_is_standard(path) ? NULL : path;
	return 0;
}

static const struct option_row rows[] = {
	{ "format", "FORMAT", "html, folded, pprof, speedscope, firefox, script, sysroot",
	  OPTION_CHOICE, .offset = offsetof(struct arguments, format), .letter = 'f',
	  .choices = formats },
	{ "by", "cgroup|container", "With html and folded: the outermost frames", OPTION_PARSE,
	  .parse = set_group },
	{ "output", "FILE", "Write to FILE instead of standard output", OPTION_PARSE, .letter = 'o',
	  .parse = set_output },
	{ 0 },
};

static int check(void *target)
{
	struct arguments *arguments = target;

	if (arguments->format == FORMAT_NONE && !arguments->output) {
		arguments->format = FORMAT_HTML;
		arguments->output = "flame.html";
		arguments->keeps_old = true;
		log_info("writing flame.html; --format and -o choose another form and file");
	}
	if (arguments->format == FORMAT_NONE)
		arguments->format = format_of_file(arguments->output);
	if (arguments->format == FORMAT_NONE)
		return error_set(
			-EINVAL,
			"-o %s: the suffix must be .html, .folded, .pb.gz, .speedscope.json, "
			".firefox.json or .txt; or give --format",
			arguments->output);
	if (arguments->format == FORMAT_SYSROOT && !arguments->output)
		return error_set(-EINVAL, "--format sysroot needs -o DIRECTORY");
	if (arguments->by && arguments->format != FORMAT_HTML && arguments->format != FORMAT_FOLDED)
		return error_set(-EINVAL, "--by is for html and folded; pprof has labels of both");
	return 0;
}

static int write_profile(const struct profile *profile, const struct arguments *arguments, FILE *to)
{
	switch (arguments->format) {
	case FORMAT_HTML:
		return flame_graph_write(profile, arguments->by, to);
	case FORMAT_PPROF:
		return pprof_write(profile, NULL, to);
	case FORMAT_FIREFOX:
		return firefox_write(profile, to);
	case FORMAT_SPEEDSCOPE:
		return speedscope_write(profile, to);
	default:
		return folded_write(profile, arguments->by, to);
	}
}

/* A report has this in its text. */
static void warn_of_missing_dwarf(const struct profile *profile)
{
	size_t images, unknown;

	profile_inlines(profile, &images, &unknown);
	if (unknown && unknown == images)
		log_warning("no image has DWARF: inlined functions are not shown");
}

static int export_profile(struct arguments *arguments, FILE *to)
{
	struct profile_options options;
	struct profile *profile;
	int error;

	profile_arguments_unpack(&arguments->input);
	options = arguments->input.options;
	if (arguments->format == FORMAT_SCRIPT)
		return script_write(&options, to);
	/* Time and hits cannot be added: other formats have room for one event. */
	if (!options.event && arguments->format != FORMAT_PPROF &&
	    arguments->format != FORMAT_HTML && arguments->format != FORMAT_FIREFOX)
		options.event = "0";
	options.lines = options.inlined && arguments->format == FORMAT_PPROF;
	options.samples = arguments->format == FORMAT_HTML ||
			  arguments->format == FORMAT_SPEEDSCOPE ||
			  arguments->format == FORMAT_FIREFOX;
	error = profile_load(&profile, &options);
	if (error)
		return error;
	if (!profile_samples(profile))
		log_warning("%s", profile_arguments_why_empty(&arguments->input));
	warn_of_missing_dwarf(profile);
	error = write_profile(profile, arguments, to);
	profile_free(profile);
	return error;
}

struct export
{
	struct arguments *arguments;
	FILE *to;
};

static int export_and_flush(void *context)
{
	const struct export *export = context;
	int error = export_profile(export->arguments, export->to);

	if (export->to != stdout && fflush(export->to) && !error)
		error = error_set(-errno, "cannot write %s: %m", export->arguments->output);
	return error;
}

static int read_confined(struct arguments *arguments, FILE *to)
{
	struct export export = { .arguments = arguments, .to = to };

	return confined_read(&arguments->input, NULL, NULL, NULL, export_and_flush, &export);
}

static int cannot_write(const struct arguments *arguments, int error)
{
	return error_set(-error, "cannot write %s: %s", arguments->output, strerror(error));
}

/* MODE as for fopen(3). */
static int write_file(struct arguments *arguments, const char *path, const char *mode)
{
	FILE *to = fopen(path, mode);
	int error;

	if (!to)
		return cannot_write(arguments, errno);
	error = read_confined(arguments, to);
	if (fclose(to) && !error)
		error = cannot_write(arguments, errno);
	return error;
}

/* The file while it is written. */
static char partial[PATH_MAX];

/* SA_RESETHAND restores the default action. */
static void end_by_signal(int signal)
{
	unlink(partial);
	raise(signal);
}

/* A signal that is ignored, as by nohup, stays ignored. */
static void remove_partial_on_signals(void)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	const struct sigaction end = { .sa_handler = end_by_signal, .sa_flags = SA_RESETHAND };
	struct sigaction before;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!sigaction(signals[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(signals[i], &end, NULL);
}

/* As perf record does with perf.data. */
static int keep_old(const struct arguments *arguments, const char *path)
{
	char old[PATH_MAX];

	if (!arguments->keeps_old || access(path, F_OK))
		return 0;
	if (snprintf(old, sizeof(old), "%s.old", path) >= (int)sizeof(old))
		return cannot_write(arguments, ENAMETOOLONG);
	if (rename(path, old))
		return cannot_write(arguments, errno);
	log_info("the existing file is now %s", old);
	return 0;
}

/* Writes another file and renames it, so that an existing file is replaced as a whole or not at
 * all.
 */
static int replace_file(struct arguments *arguments, const char *path)
{
	int error;

	if (snprintf(partial, sizeof(partial), "%s.partial", path) >= (int)sizeof(partial))
		return cannot_write(arguments, ENAMETOOLONG);
	remove_partial_on_signals();
	/* Left by an export that was killed; a link must not be followed. */
	if (unlink(partial) && errno != ENOENT)
		return cannot_write(arguments, errno);
	error = write_file(arguments, partial, "wxe");
	if (!error)
		error = keep_old(arguments, path);
	if (!error && rename(partial, path))
		error = cannot_write(arguments, errno);
	if (error)
		unlink(partial);
	return error;
}

/* A pipe or a device is written to, not replaced. A link is followed to the file to replace. */
static int export_to_file(struct arguments *arguments)
{
	char target[PATH_MAX];

	if (output_path_is_file(arguments->output, target))
		return replace_file(arguments, target);
	return write_file(arguments, arguments->output, "we");
}

static int write_sysroot(void *context)
{
	struct arguments *arguments = context;
	const char *root = arguments->output;
	struct sysroot_counts counts;
	int error;

	profile_arguments_unpack(&arguments->input);
	error = sysroot_write(&arguments->input.options, root, &counts);
	if (error)
		return error;
	if (counts.missing)
		log_warning("%zu images have no symbols here", counts.missing);
	if (counts.replaced)
		log_warning("%zu files changed during the recording and are left out",
			    counts.replaced);
	log_info("open it by: hotspot --sysroot %s --appPath %s/none --extraLibPaths %s/none %s",
		 root, root, root, arguments->input.options.input);
	return 0;
}

/* The sandbox can write to a directory that exists. */
static int export_sysroot(struct arguments *arguments)
{
	bool made = !mkdir(arguments->output, 0755);
	int error = confined_read(&arguments->input, NULL, arguments->output, NULL, write_sysroot,
				  arguments);

	if (error && made)
		rmdir(arguments->output); /* if it is empty */
	return error;
}

static int export(struct arguments *arguments)
{
	if (arguments->format == FORMAT_SYSROOT)
		return export_sysroot(arguments);
	return arguments->output ? export_to_file(arguments) : read_confined(arguments, stdout);
}

int command_export(int argc, char **argv)
{
	struct arguments arguments = { .format = FORMAT_NONE };
	const struct option_group groups[] = { { NULL, rows, &arguments, check },
					       profile_arguments_options(&arguments.input),
					       { 0 } };
	const struct option_command table = { .name = "kvmscope export",
					      .doc = summary,
					      .groups = groups,
					      .words = "[FILE]",
					      .word = profile_arguments_word,
					      .context = &arguments.input };
	int error = option_table_parse(&table, argc, argv);

	if (error)
		return command_failed();
	error = export(&arguments);
	profile_arguments_free(&arguments.input);
	return error ? profile_arguments_failed(error) : EXIT_OK;
}
