/* SPDX-License-Identifier: Apache-2.0 */
/* The options by which report and export choose and read a profile. */
#ifndef KVMSCOPE_CLI_PROFILE_ARGUMENTS_H
#define KVMSCOPE_CLI_PROFILE_ARGUMENTS_H

#include <argp.h>
#include <limits.h>

#include "vmm/report/profile_stacks.h"

struct profile_arguments {
	struct profile_options options;
	struct guest_disk *disks[8]; /* that the options point to */
	char names[PATH_MAX];        /* that the options may point to */
};

/* A child parser: -i, --vcpu, --event, --kallsyms, --vmlinux, --buildid-dir, --symfs, --inline,
 * --debuginfod,
 * --guest-disk; its input is struct profile_arguments. */
extern const struct argp profile_argp;

void profile_arguments_init(struct profile_arguments *arguments);
void profile_arguments_free(struct profile_arguments *arguments);

/* One line for a profile without samples. */
const char *profile_arguments_why_empty(const struct profile_arguments *arguments);

#endif
