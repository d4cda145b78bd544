/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/profile_arguments.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/private_directory.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/symbols/debuginfod.h"
#include "vmm/symbols/symbol_archive.h"

/* The sandbox of root's commands (confined_reader.h) cannot start programs. */
static int start_broker(struct sandbox_broker **broker, const char *path)
{
	const struct disk_file file = { .path = path };

	if (geteuid() || !guest_disk_reader())
		return 0;
	return sandbox_broker_start(broker, guest_disk_reader(), &file, 1);
}

static int open_disk(struct profile_arguments *arguments, const char *path)
{
	size_t number = arguments->options.disk_count;
	const struct guest_disk_limits limits = { .file_max = GUEST_DISK_FILE_MAX,
						  .broker = arguments->brokers[number] };

	return guest_disk_open(&arguments->disks[number], path, &limits);
}

static int add_disk(void *target, char *path)
{
	struct profile_arguments *arguments = target;
	const size_t most = sizeof(arguments->disks) / sizeof(arguments->disks[0]);
	struct profile_options *options = &arguments->options;

	if (options->disk_count == most)
		return error_set(-EINVAL, "--guest-disk: at most %zu are possible", most);
	if (start_broker(&arguments->brokers[options->disk_count], path) ||
	    open_disk(arguments, path))
		return -EIO;
	options->disks = arguments->disks;
	options->disk_count++;
	return 0;
}

static const char default_input[] = "perf.data";

int profile_arguments_word(void *context, char *text)
{
	struct profile_arguments *arguments = context;

	if (arguments->options.input != default_input)
		return error_set(-EINVAL, "%s: only one recording can be read, and it is %s", text,
				 arguments->options.input);
	arguments->options.input = text;
	return 0;
}

static int set_symfs(void *target, char *path)
{
	struct stat status;

	if (stat(path, &status))
		return error_set(-EINVAL, "--symfs %s: %m; it must be a directory", path);
	if (!S_ISDIR(status.st_mode))
		return error_set(-EINVAL, "--symfs %s: it must be a directory", path);
	((struct profile_arguments *)target)->options.sources.symfs = path;
	return 0;
}

static int set_times(void *target, char *text)
{
	struct profile_arguments *arguments = target;

	arguments->options.times = &arguments->times;
	return time_ranges_parse(&arguments->times, text);
}

static int open_debuginfod(void *target, char *url)
{
	struct profile_arguments *arguments = target;

	return debuginfod_open(&arguments->options.sources.debuginfod, url) ? -EINVAL : 0;
}

#define AT(field) .offset = offsetof(struct profile_arguments, options.field)

static const struct option_row rows[] = {
	{ "input", "FILE", "The recording; - is standard input (perf.data)", OPTION_TEXT, AT(input),
	  .letter = 'i' },
	{ "vcpu", "N", "Only samples of vCPU N, counted from 0", OPTION_NUMBER, AT(vcpu),
	  .high = INT32_MAX },
	{ "time", "RANGE", "Only samples at START,STOP (s), 10%-20% or 10%/2", OPTION_PARSE,
	  .parse = set_times },
	{ "event", "NAME|N", "Only this event, by name or by number from 0", OPTION_TEXT,
	  AT(event) },
	{ "kallsyms", "FILE", "Kernel symbols: a copy of /proc/kallsyms", OPTION_TEXT,
	  AT(kallsyms) },
	{ "vmlinux", "FILE", "Kernel symbols: the guest's vmlinux", OPTION_TEXT, AT(vmlinux),
	  .letter = 'k' },
	{ "buildid-dir", "DIR", "Build-id cache (kvmscoped's names/, or perf's)", OPTION_TEXT,
	  AT(sources.buildid_dir) },
	{ "symfs", "DIR", "The guest's programs and libraries are below DIR", OPTION_PARSE,
	  .parse = set_symfs },
	{ "inline", NULL, "Show inlined functions, where DWARF is found", OPTION_SET, AT(inlined) },
	{ "guest-disk", "FILE", "Search a raw image or block device, repeatable", OPTION_PARSE,
	  .parse = add_disk },
	{ "debuginfod", "URL", "Ask debuginfod at URL or DEBUGINFOD_URLS", OPTION_PARSE,
	  .optional = true, .parse = open_debuginfod },
	{ 0 },
};

static bool exists(const char *directory, int length, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%.*s%s", length, directory, name) <
		       (int)sizeof(path) &&
	       !access(path, R_OK);
}

int profile_arguments_archive(char path[PATH_MAX], const char *input)
{
	if (strcmp(input, "-") && snprintf(path, PATH_MAX, "%s.tar.gz", input) < PATH_MAX)
		return 0;
	return error_set(-EINVAL, "%s: a recording with an archive must be a file", input);
}

/* A recording can come with its symbols (kvmscope archive). */
static void use_archive(struct profile_arguments *arguments)
{
	const char *input = arguments->options.input;

	if (arguments->ignore_archive || !strcmp(input, "-") ||
	    profile_arguments_archive(arguments->archive, input) ||
	    access(arguments->archive, R_OK)) {
		arguments->archive[0] = '\0';
		return;
	}
	if (!private_directory_make(arguments->directory)) {
		arguments->options.sources.buildid_dir = arguments->directory;
		return;
	}
	arguments->archive[0] = arguments->directory[0] = '\0';
	log_warning("%s; using the build-id cache", error_message());
}

static bool is_pipe(const char *input)
{
	struct stat status;
	int error = strcmp(input, "-") ? stat(input, &status) : fstat(STDIN_FILENO, &status);

	return !error && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

/* A sandbox may not write to a directory of others. */
static int make_copy_directory(struct profile_arguments *arguments)
{
	if (geteuid() || *arguments->directory || !is_pipe(arguments->options.input))
		return 0;
	return private_directory_make(arguments->directory);
}

void profile_arguments_unpack(struct profile_arguments *arguments)
{
	struct profile_options *options = &arguments->options;

	if (*arguments->directory)
		setenv("TMPDIR", arguments->directory, true);
	if (!*arguments->archive ||
	    !symbol_archive_unpack(arguments->archive, options->input, arguments->directory))
		return;
	log_warning("%s; using the build-id cache", error_message());
	options->sources.buildid_dir = NULL;
}

/* kvmscoped keeps a domain's symbols next to its recordings, not in perf's cache
 * (docs/continuous-profiling.md). */
static int find_cache(struct profile_arguments *arguments)
{
	const char *input = arguments->options.input, *slash = strrchr(input, '/');
	int length = slash ? (int)(slash + 1 - input) : 0;

	arguments->cache_chosen = arguments->options.sources.buildid_dir;
	if (arguments->cache_chosen)
		return 0;
	if (!exists(input, length, "domain") || !exists(input, length, "names/.build-id")) {
		use_archive(arguments);
		return 0;
	}
	snprintf(arguments->names, sizeof(arguments->names), "%.*snames", length, input);
	arguments->options.sources.buildid_dir = arguments->names;
	return 0;
}

int profile_arguments_other(struct profile_arguments *other,
			    const struct profile_arguments *arguments, const char *input)
{
	*other = *arguments;
	other->archive[0] = other->directory[0] = '\0';
	other->options.input = input;
	if (!arguments->cache_chosen)
		other->options.sources.buildid_dir = NULL;
	return find_cache(other);
}

static int check(void *target)
{
	int error = find_cache(target);

	return error ? error : make_copy_directory(target);
}

struct option_group profile_arguments_options(struct profile_arguments *arguments)
{
	*arguments =
		(struct profile_arguments){ .options = { .input = default_input, .vcpu = -1 } };
	return (struct option_group){ "Input:", rows, arguments, check };
}

void profile_arguments_free(struct profile_arguments *arguments)
{
	debuginfod_close(arguments->options.sources.debuginfod);
	for (size_t i = 0; i < arguments->options.disk_count; i++)
		guest_disk_close(arguments->disks[i]);
	for (size_t i = 0; i < sizeof(arguments->brokers) / sizeof(arguments->brokers[0]); i++)
		sandbox_broker_end(arguments->brokers[i]);
}

int profile_arguments_failed(int error)
{
	command_failed();
	return error == -ENXIO ? EXIT_USAGE : EXIT_FAILED; /* no such event */
}

const char *profile_arguments_why_empty(const struct profile_arguments *arguments)
{
	if (arguments->options.vcpu >= 0)
		return "no samples of this vCPU; without --vcpu all are shown";
	if (arguments->options.times)
		return "no samples at this time; kvmscope export -f script prints the times";
	return "no samples: the recording was very short, or the guest was idle (see --clock wall of kvmscope run)";
}
