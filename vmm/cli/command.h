/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands: one file each, named after it; parsing and messages only. */
#ifndef KVMSCOPE_CLI_COMMAND_H
#define KVMSCOPE_CLI_COMMAND_H

#include <stdbool.h>

/* Exit codes, documented in kvmscope(1). A guest's debug-exit value is passed on unchanged. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,      /* the command failed */
	EXIT_USAGE = 2,       /* the command line is wrong */
	EXIT_GUEST_CRASH = 3, /* triple fault or KVM internal error */
	EXIT_UNSUPPORTED = 4, /* this host's KVM cannot do it: see kvmscope doctor */
	EXIT_TIMEOUT = 124,   /* kvmscope run --timeout expired; as timeout(1) */
};

/* ARGV[0] is the subcommand's name; returns an exit code. Main thread, once. */
typedef int command(int argc, char **argv);

command command_run;
command command_attach;
command command_top;
command command_stat;
command command_ctl;
command command_dump;
command command_libvirt;
command command_report;
command command_diff;
command command_export;
command command_archive;
command command_doctor;
command command_demo;

/* True if the user ended the guest of the last command_run() by a signal or Ctrl-A x, which its
 * exit code does not show. */
bool command_run_was_ended(void);

/* Logs error_message() and returns EXIT_FAILED. */
int command_failed(void);

#endif
