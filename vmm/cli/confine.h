/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits what a guest that has taken over a thread of kvmscope run can do. Each thread, before it
 * handles input of the guest, sets NO_NEW_PRIVS, keeps only the capabilities that perf events need,
 * restricts itself to the files of the run by Landlock (Linux 5.19), and installs a seccomp filter
 * (confine_calls.h).
 */
#ifndef KVMSCOPE_CLI_CONFINE_H
#define KVMSCOPE_CLI_CONFINE_H

#include <stdbool.h>

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

/* True after confine_start() if the threads are confined: they can create no process. Any thread.
 */
bool confine_is_active(void);

/* Checks that the sandbox permits PATH, a later recording: it permits the directory of -o and what
 * is below. 0, or -EACCES with its message. Any thread. */
int confine_check_output(const char *path);

#endif
