/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends a stop of another process's thread (thread_stop.h) if we are stopped ourselves meanwhile.
 * The kernel detaches a tracer that has died; one that is stopped or frozen would keep its tracee
 * stopped.
 *
 * Kernel timers keep running, and send signals that need none of our code:
 *
 *	50 ms	SIGCONT: resumes a stopped process when it is sent, before it is handled
 *		(prepare_signal() in kernel/signal.c). Ends SIGSTOP and the like.
 *	2 s	SIGKILL, if that did not help, as in a frozen cgroup or under a debugger: the
 *		kernel detaches the thread, which continues (remote_call.h).
 *
 * A thread of ours that is only slow handles SIGCONT, which restarts both times. So only a thread
 * that cannot even handle a signal is killed; that includes one that waits for a page of guest
 * memory.
 *
 * One per thread that stops others; the thread handles SIGCONT from then on.
 */
#ifndef KVMSCOPE_ATTACH_STOP_GUARD_H
#define KVMSCOPE_ATTACH_STOP_GUARD_H

#include <stdbool.h>
#include <time.h>

#include "shared/thread_check.h"

/* Zero-initialized. */
struct stop_guard {
	timer_t wake, kill;
	bool open;
	struct thread_check thread;
};

/* Call before thread_stop(). Negative errno of timer_create() or sigaction(), with the message:
 * do not stop anything. */
int stop_guard_begin(struct stop_guard *guard);

/* Call after thread_resume(). */
void stop_guard_end(struct stop_guard *guard);

/* Also for an unused one. On its thread. */
void stop_guard_close(struct stop_guard *guard);

#endif
