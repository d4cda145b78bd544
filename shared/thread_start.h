/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_SHARED_THREAD_START_H
#define KVMSCOPE_SHARED_THREAD_START_H

#include <pthread.h>
#include <signal.h>

/* Starts RUN(CONTEXT) in a thread with all signals blocked: they are for the main thread and, where
 * vcpu_run() unblocks them, for the vCPUs. Returns 0 or the negative error of pthread_create(3). */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

#endif
