/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a stop of another process's thread (thread_stop.h) if we come to stand still ourselves
 *meanwhile. A tracer that has ended is let go of by the kernel; one that is stopped or frozen would
 *keep its tracee.
 *
 * Timers of the kernel go on then, and send signals that need none of our code to work:
 *
 *	50 ms	SIGCONT: a stopped process goes on when it is sent, before anybody takes it
 *		(prepare_signal() in kernel/signal.c). It ends SIGSTOP and its like.
 *	2 s	SIGKILL, where that did not help, as in a frozen cgroup or under a debugger:
 *		the kernel lets go of the thread, which goes on (remote_call.h).
 *
 * A thread of ours that is only slow, as one that waits for another that does not come out of the
 *kernel, gets SIGCONT too, and by it begins both times anew: it is awake. So what is killed could
 *not even take a signal, and that also is one for whom a page of the guest's memory does not come.
 *
 * One thread each, the one that stops others. It handles SIGCONT from then on.
 */
#ifndef KVMSCOPE_ATTACH_STOP_GUARD_H
#define KVMSCOPE_ATTACH_STOP_GUARD_H

#include <stdbool.h>
#include <time.h>

/* Zeroed before its first use. */
struct stop_guard {
	timer_t wake, kill;
	bool open;
};

/* To be called before thread_stop(). 0, or a negative errno of timer_create() or sigaction(), with
 * the message: nothing may be stopped. */
int stop_guard_begin(struct stop_guard *guard);

/* After thread_resume(). */
void stop_guard_end(struct stop_guard *guard);

/* Works on one that was never used. On its thread. */
void stop_guard_close(struct stop_guard *guard);

#endif
