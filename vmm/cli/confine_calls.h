/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters of the threads of kvmscope run. The threads that handle the guest's input, vCPUs
 * and devices, have lists of what they may call; the others, which read and write files of many
 * kinds, lists of what nobody may: programs, other processes, new sockets, BPF programs, the
 * kernel's configuration. As all threads share their memory, no list may be empty.
 */
#ifndef KVMSCOPE_CLI_CONFINE_CALLS_H
#define KVMSCOPE_CLI_CONFINE_CALLS_H

#include <stdbool.h>

/* Compiles the filters. With BPF, maps and events of loaded programs may be used. Main thread. 0,
 * or a negative errno with its message. */
int confine_calls_prepare(bool bpf);

/*
 * Installs the filter for the calling thread, called THREAD. A call that is not allowed ends the
 * process with a message that names the thread and the call. 0, or a negative errno with its
 * message.
 */
int confine_calls(const char *thread);

#endif
