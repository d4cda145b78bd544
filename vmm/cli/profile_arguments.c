/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/profile_arguments.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/option_number.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/symbols/debuginfod.h"

enum {
	KEY_VCPU = 512,
	KEY_KALLSYMS,
	KEY_BUILDID_DIR,
	KEY_SYMFS,
	KEY_EVENT,
	KEY_INLINE,
	KEY_DEBUGINFOD,
	KEY_GUEST_DISK
};

static const struct argp_option options[] = {
	{ "input", 'i', "FILE", 0, "The recording (default perf.data); - is standard input", 0 },
	{ "vcpu", KEY_VCPU, "N", 0, "Take the samples of vCPU N only, counted from 0", 0 },
	{ "event", KEY_EVENT, "NAME|N", 0,
	  "Take the samples of this event only: by its name, or by its number, 0 the first (default: report and "
	  "script show all, stacks are of the first)",
	  0 },
	{ "kallsyms", KEY_KALLSYMS, "FILE", 0,
	  "Kernel symbols: a copy of the guest's /proc/kallsyms", 0 },
	{ "vmlinux", 'k', "FILE", 0, "Kernel symbols: the guest's vmlinux", 0 },
	{ "buildid-dir", KEY_BUILDID_DIR, "DIR", 0,
	  "Look for symbols in DIR (default names/ beside a recording of kvmscoped, else buildid.dir of perf's configuration, else ~/.debug)",
	  0 },
	{ "symfs", KEY_SYMFS, "DIR", 0,
	  "Look for the guest's programs and libraries below DIR, by their paths in the guest; taken if the build id "
	  "is the recorded one",
	  0 },
	{ "inline", KEY_INLINE, NULL, 0,
	  "Show functions that the compiler put into others as functions of their own, marked (inlined), where there is "
	  "DWARF of that build: in the file, /usr/lib/debug, --symfs, the build-id cache or --vmlinux",
	  0 },
	{ "guest-disk", KEY_GUEST_DISK, "FILE", 0,
	  "Look for the guest's programs and libraries on its disk: a raw image or a block device, also while the guest runs; only "
	  "read, and taken if the build id is the recorded one; may be repeated",
	  0 },
	{ "debuginfod", KEY_DEBUGINFOD, "URL", OPTION_ARG_OPTIONAL,
	  "Ask debuginfod servers for files that are not here, by build id: those of URL, else of DEBUGINFOD_URLS; without it nothing goes "
	  "over the network",
	  0 },
	{ 0 },
};

static bool is_there(const char *directory, int length, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%.*s%s", length, directory, name) <
		       (int)sizeof(path) &&
	       !access(path, R_OK);
}

/* kvmscoped keeps a domain's names beside its recordings, not where perf has them
 * (docs/continuous-profiling.md). */
static void find_names(struct profile_arguments *arguments)
{
	const char *input = arguments->options.input, *slash = strrchr(input, '/');
	int length = slash ? (int)(slash + 1 - input) : 0;

	if (arguments->options.sources.buildid_dir || !is_there(input, length, "domain") ||
	    !is_there(input, length, "names/.build-id"))
		return;
	snprintf(arguments->names, sizeof(arguments->names), "%.*snames", length, input);
	arguments->options.sources.buildid_dir = arguments->names;
}

static void add_disk(struct profile_arguments *arguments, const struct argp_state *state,
		     const char *path)
{
	const size_t most = sizeof(arguments->disks) / sizeof(arguments->disks[0]);
	struct profile_options *wanted = &arguments->options;

	if (wanted->disk_count == most)
		argp_error(state, "--guest-disk can be given %zu times", most);
	if (guest_disk_open(&arguments->disks[wanted->disk_count], path, NULL))
		argp_failure(state, EXIT_FAILED, 0, "%s", error_message());
	wanted->disks = arguments->disks;
	wanted->disk_count++;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct profile_arguments *arguments = state->input;

	switch (key) {
	case 'i':
		arguments->options.input = value;
		return 0;
	case KEY_VCPU:
		arguments->options.vcpu =
			(int32_t)option_number(state, "--vcpu", value, 0, INT32_MAX);
		return 0;
	case KEY_EVENT:
		arguments->options.event = value;
		return 0;
	case KEY_KALLSYMS:
		arguments->options.kallsyms = value;
		return 0;
	case 'k':
		arguments->options.vmlinux = value;
		return 0;
	case KEY_BUILDID_DIR:
		arguments->options.sources.buildid_dir = value;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; the recording is named by -i", value);
		return 0;
	case ARGP_KEY_SUCCESS:
		find_names(arguments);
		return 0;
	case KEY_SYMFS:
		arguments->options.sources.symfs = value;
		return 0;
	case KEY_GUEST_DISK:
		add_disk(arguments, state, value);
		return 0;
	case KEY_DEBUGINFOD:
		if (debuginfod_open(&arguments->options.sources.debuginfod, value))
			argp_failure(state, EXIT_USAGE, 0, "%s", error_message());
		return 0;
	case KEY_INLINE:
		arguments->options.inlined = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void profile_arguments_free(struct profile_arguments *arguments)
{
	debuginfod_close(arguments->options.sources.debuginfod);
	for (size_t i = 0; i < arguments->options.disk_count; i++)
		guest_disk_close(arguments->disks[i]);
}

const struct argp profile_argp = { .options = options, .parser = parse };

void profile_arguments_init(struct profile_arguments *arguments)
{
	*arguments = (struct profile_arguments){ .options = { .input = "perf.data", .vcpu = -1 } };
}

const char *profile_arguments_why_empty(const struct profile_arguments *arguments)
{
	if (arguments->options.vcpu >= 0)
		return "no samples of this vCPU; without --vcpu all are shown";
	return "no samples: the recording was very short, or the guest was idle (see --clock wall of kvmscope run)";
}
