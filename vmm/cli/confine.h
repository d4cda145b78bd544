/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread of kvmscope run may still do if a guest has taken it over. Every thread, before it
 * handles anything of the guest: NO_NEW_PRIVS; only the capabilities that perf events need; by
 * Landlock (Linux 5.19) no files but those below; a seccomp filter of its own (confine_calls.h).
 */
#ifndef KVMSCOPE_CLI_CONFINE_H
#define KVMSCOPE_CLI_CONFINE_H

#include "vmm/cli/run_options.h"

/*
 * Becomes options->user, if any, then prepares the rules. From now on each new thread confines
 * itself, or ends the process if it cannot. Main thread, before it starts any. 0, or a negative
 * errno with its message. Without options->sandbox, and in builds with sanitizers, which make other
 * system calls, does not confine anything.
 */
int confine_start(const struct run_options *options);

/* Confines the main thread, which has opened everything by now. 0, or a negative errno with its
 * message. */
int confine_main(void);

/* Whether the sandbox permits to write PATH, a later recording, which it does below the directory
 * of -o. 0, or -EACCES with its message. Any thread. */
int confine_check_output(const char *path);

#endif
