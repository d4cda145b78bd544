/* SPDX-License-Identifier: Apache-2.0 */
/* The options that kvmscope run and kvmscope attach share: what is recorded, and where to. */
#ifndef KVMSCOPE_CLI_RECORD_OPTIONS_H
#define KVMSCOPE_CLI_RECORD_OPTIONS_H

#include <stdbool.h>

#include "shared/option_table.h"
#include "vmm/session/profile_session.h"

#define RECORD_FREQUENCY_MAX 10000u

struct record_options {
	const char *output;
	unsigned int frequency; /* Hz */
	bool callchains;
	enum perspective perspective;
	unsigned int compression; /* zstd level; 0: none */
	const char *kallsyms, *vmlinux, *btf;
	bool buildid_cache;
	bool disk_symbols;   /* search the disks for symbols at the end */
	bool self_contained; /* then write the archive of symbols */
	bool quiet, verbose;
	char *command_line; /* owned: all words as the user gave them, for the recording's header */
};

/* For a struct record_options: those of the profile, and those of messages. */
extern const struct option_row record_rows[], record_message_rows[];

/* For a struct record_options: -EINVAL if they exclude each other. */
int record_options_check(void *options);

/* The defaults, and the words before the options are parsed, which reorders them. -ENOMEM. */
int record_options_init(struct record_options *options, int argc, char **argv);
void record_options_free(struct record_options *options);

/* The fields of SESSION that these options set. */
void record_options_apply(const struct record_options *options, struct session_options *session);

/* Should the disks be searched for symbols? In the host's perspective there are no processes. */
bool record_options_search_disks(const struct record_options *options);

#endif
