/* SPDX-License-Identifier: Apache-2.0 */
/* The options of kvmscope attach. */
#ifndef KVMSCOPE_CLI_ATTACH_OPTIONS_H
#define KVMSCOPE_CLI_ATTACH_OPTIONS_H

#include <stdbool.h>

#include "vmm/attach/attachment.h"
#include "vmm/perf_data/perf_data_writer.h"

struct attach_command_options {
	struct attach_options attach;
	bool names_vm;     /* one was named, in whatever way */
	unsigned int time; /* seconds; 0: until the VM ends */
	const char *output;
	enum perspective perspective;
	unsigned int compression;
	const char *kallsyms, *vmlinux, *btf;
	bool agent;               /* the guest's, where there is a channel for it */
	const char *agent_socket; /* its; NULL: found by itself */
	bool disk_symbols;        /* look for names on the VM's disks at the end */
	bool buildid_cache, json, quiet, verbose;
	char *command_line; /* owned */
};

/* Ends the process with a message where the command line is wrong; -ENOMEM. */
int attach_options_parse(struct attach_command_options *options, int argc, char **argv);
void attach_options_free(struct attach_command_options *options);

#endif
