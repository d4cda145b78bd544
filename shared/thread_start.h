/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_SHARED_THREAD_START_H
#define KVMSCOPE_SHARED_THREAD_START_H

#include <pthread.h>

/*
 * Starts RUN(CONTEXT) in a thread called NAME (at most 15 characters; copied), as top and perf show
 * it. All its signals are blocked: they are for the main thread and, where vcpu_run() unblocks
 * them, for the vCPUs. SIGSYS, which seccomp sends to a thread, is not blocked.
 * Any thread. Returns 0, -ENOMEM or the negative error of pthread_create(3).
 */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

/* Each thread that is started after this call runs CALL(NAME) first. Main thread. */
void thread_start_with(void (*call)(const char *name));

#endif
