/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters of the threads of kvmscope run: for each thread the system calls that it may
 * make, with the arguments that matter. Every thread needs a filter, as all of them share their
 * memory. A thread that a confined one has started, of a vCPU for example, has both filters.
 */
#ifndef KVMSCOPE_CLI_CONFINE_CALLS_H
#define KVMSCOPE_CLI_CONFINE_CALLS_H

#include <stdbool.h>

/* Compiles the filters. With BPF, the thread "attach" may use it. Main thread; the process must not
 * fork afterwards. 0, or a negative errno with its message. */
int confine_calls_prepare(bool bpf);

/*
 * Installs the filter for the calling thread, called THREAD. A call that is not allowed restores
 * the terminal and ends the process with a message that names the thread and the call. 0, -EINVAL
 * if there is no filter for that name, or another negative errno, with its message.
 */
int confine_calls(const char *thread);

#endif
