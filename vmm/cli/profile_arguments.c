/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/profile_arguments.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/symbols/debuginfod.h"

static int add_disk(void *target, char *path)
{
	struct profile_arguments *arguments = target;
	const size_t most = sizeof(arguments->disks) / sizeof(arguments->disks[0]);
	struct profile_options *options = &arguments->options;

	if (options->disk_count == most)
		return error_set(-EINVAL, "--guest-disk: at most %zu are possible", most);
	if (guest_disk_open(&arguments->disks[options->disk_count], path, NULL))
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

/* kvmscoped keeps a domain's symbols next to its recordings, not in perf's cache
 * (docs/continuous-profiling.md). */
static int find_cache(void *target)
{
	struct profile_arguments *arguments = target;
	const char *input = arguments->options.input, *slash = strrchr(input, '/');
	int length = slash ? (int)(slash + 1 - input) : 0;

	if (arguments->options.sources.buildid_dir || !exists(input, length, "domain") ||
	    !exists(input, length, "names/.build-id"))
		return 0;
	snprintf(arguments->names, sizeof(arguments->names), "%.*snames", length, input);
	arguments->options.sources.buildid_dir = arguments->names;
	return 0;
}

struct option_group profile_arguments_options(struct profile_arguments *arguments)
{
	*arguments =
		(struct profile_arguments){ .options = { .input = default_input, .vcpu = -1 } };
	return (struct option_group){ "Input:", rows, arguments, find_cache };
}

void profile_arguments_free(struct profile_arguments *arguments)
{
	debuginfod_close(arguments->options.sources.debuginfod);
	for (size_t i = 0; i < arguments->options.disk_count; i++)
		guest_disk_close(arguments->disks[i]);
}

const char *profile_arguments_why_empty(const struct profile_arguments *arguments)
{
	if (arguments->options.vcpu >= 0)
		return "no samples of this vCPU; without --vcpu all are shown";
	return "no samples: the recording was very short, or the guest was idle (see --clock wall of kvmscope run)";
}
