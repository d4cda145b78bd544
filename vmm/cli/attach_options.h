/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `kvmscope attach`. */
#ifndef KVMSCOPE_CLI_ATTACH_OPTIONS_H
#define KVMSCOPE_CLI_ATTACH_OPTIONS_H

#include "vmm/attach/attachment.h"
#include "vmm/cli/record_options.h"
#include "vmm/perf_data/perf_data_watch.h"

struct attach_command_options {
	struct attach_options attach;
	struct record_options record;
	bool names_vm;            /* a VM was selected, by whatever option */
	unsigned int time;        /* seconds; 0: until the VM ends */
	bool agent;               /* use the guest agent where there is a channel for it */
	const char *agent_socket; /* the agent's socket; NULL: found automatically */
	bool json;
	struct perf_data_watches events; /* by attach.outside */
};

/* Ends the process with a message if the command line is wrong. -ENOMEM. */
int attach_options_parse(struct attach_command_options *options, int argc, char **argv);
void attach_options_free(struct attach_command_options *options);

#endif
