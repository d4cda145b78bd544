/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of another process that stands still for a moment: ptrace(2).
 *
 * Whoever traces may die at any instruction. The kernel lets go of the thread then (exit_ptrace()
 * in kernel/ptrace.c), and it goes on with the registers that it has; nothing here gives it any
 * that it could not go on with. Stops are looked at without being taken (WNOWAIT): one that was
 * taken has forgotten its signal (wait_task_stopped() in kernel/exit.c), which would be lost with
 * us. And PTRACE_O_TRACESYSGOOD makes of a system call's stop something that is no signal, where a
 * plain one would become a SIGTRAP that kills (ptrace_report_syscall() in include/linux/ptrace.h).
 *
 * Whoever traces may be stopped at any instruction, too: stop_guard_begin() comes before a stop
 * (stop_guard.h).
 *
 * It is traced only while it is stopped, so that its signals are nobody else's business at other
 * times. The kernel wants all of a stop on one thread of ours.
 */
#ifndef KVMSCOPE_ATTACH_THREAD_STOP_H
#define KVMSCOPE_ATTACH_THREAD_STOP_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct thread_stop {
	pid_t tid;
	int signal;     /* that it gets when it goes on; 0: none */
	uint64_t since; /* ns, CLOCK_MONOTONIC: when it was seen to stand still */
	struct user_regs_struct registers; /* as it stopped */
};

/*
 * Stops thread TID, wherever it is: a system call that can be interrupted is. 0: it stands still,
 * and thread_go_on() is to be called. -EINTR: a signal was about to be delivered, or it is stopped
 * by others; it went on. -EPERM or -EACCES: it may not be traced, or is by another; -ESRCH: it has
 * ended. No messages.
 */
int thread_stop(struct thread_stop *stop, pid_t tid);

/*
 * The stopped thread goes on with REGISTERS until its next system call has ended: 0. -EINTR: a
 * signal came before, and the call is not made; -ESRCH.
 */
int thread_call(struct thread_stop *stop, const struct user_regs_struct *registers);

/* Lets the thread go on, with its registers as they are; or, if it was killed, end: nothing of it
 * is left with us. */
void thread_go_on(struct thread_stop *stop);

#endif
