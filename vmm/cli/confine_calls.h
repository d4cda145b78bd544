/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters of the threads of kvmscope run. The threads that handle the guest's input, those
 * of vCPUs and devices, have a list of allowed calls. The others read and write files of many kinds
 * and have a list of forbidden calls: programs, other processes, new sockets, BPF programs, the
 * kernel's configuration. Every thread needs a filter, as all of them share their memory.
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
