/* SPDX-License-Identifier: Apache-2.0 */
/* The options by which report and export select and read a recording. Main thread. */
#ifndef KVMSCOPE_CLI_PROFILE_ARGUMENTS_H
#define KVMSCOPE_CLI_PROFILE_ARGUMENTS_H

#include <limits.h>
#include <stdbool.h>

#include "shared/option_table.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/time_ranges.h"

struct profile_arguments {
	struct profile_options options;
	struct guest_disk *disks[8]; /* the options may point to these and the following texts */
	struct sandbox_broker *brokers[8]; /* of the disks; NULL: none is needed */
	char names[PATH_MAX];
	char archive[PATH_MAX];   /* of symbols, to be unpacked; "": none */
	char directory[PATH_MAX]; /* private, for the archive and a copy of a pipe; "": none */
	struct time_ranges times;
	bool cache_chosen;   /* by the user */
	bool ignore_archive; /* read the build-id cache, not the recording's archive */
};

/* Sets the defaults; a group of options that fills ARGUMENTS. */
struct option_group profile_arguments_options(struct profile_arguments *arguments);

/* A word of the command line: the recording. For struct option_command. */
int profile_arguments_word(void *arguments, char *text);

/* OTHER is ARGUMENTS for another recording, with that one's symbols; it points into ARGUMENTS and
 * need not be freed. 0 or a negative errno with a message. */
int profile_arguments_other(struct profile_arguments *other,
			    const struct profile_arguments *arguments, const char *input);

/* The path of the archive of symbols that belongs to the recording INPUT. -EINVAL: a pipe has none.
 */
int profile_arguments_archive(char path[PATH_MAX], const char *input);

/* Unpacks the recording's archive, if any. To be called before the recording is read, in the
 * process that reads it. */
void profile_arguments_unpack(struct profile_arguments *arguments);

void profile_arguments_free(struct profile_arguments *arguments);

/* Logs the error ERROR of loading a profile and returns the exit code. */
int profile_arguments_failed(int error);

/* One line about a profile without samples. */
const char *profile_arguments_why_empty(const struct profile_arguments *arguments);

#endif
