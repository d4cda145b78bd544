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

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/user.h>

#include "vmm/attach/process.h"

struct thread_stop {
	pid_t tid;
	int signal;     /* that it gets when it goes on; 0: none */
	uint64_t since; /* ns, CLOCK_MONOTONIC: when it was seen to stand still */
	struct user_regs_struct registers; /* as it stopped */
};

/*
 * Stops thread TID, wherever it is: a system call that can be interrupted is. 0: it stands still,
 * and thread_resume() is to be called. -EINTR: a signal was about to be delivered, or it is stopped
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
void thread_resume(struct thread_stop *stop);

/*
 * The stack of a thread of another process: is it the thread's own, with nobody else's memory below
 * what is in use? It is where the C library made the thread, which has its control block at the top
 * of the stack (glibc: nptl/allocatestack.c; musl: src/thread/pthread_create.c), or where it is the
 * first thread of its process. A runtime that switches stacks by itself may run on any piece of its
 * heap: a goroutine's stack has a few KiB, and the heap's other objects around it.
 */

/* The mapping that the stack is in, [start, end); END 0: it is not known. */
struct thread_stack {
	uint64_t start, end;
	bool own; /* the thread's, as above */
};

/* Is STACK that of RSP? */
bool thread_stack_has(const struct thread_stack *stack, uint64_t rsp);

/*
 * Looks for the stack of thread TID of PROCESS whose registers are RSP and FS (its thread pointer),
 * in what the process has mapped: that takes a millisecond where it has very much. False: RSP is
 * nowhere, or the process can not be looked at. Any thread.
 */
bool thread_stack_find(struct thread_stack *stack, const struct vmm_process *process, pid_t tid,
		       uint64_t rsp, uint64_t fs);

/*
 * The same of MAPS, as /proc/PID/maps has them. FS is 0 where it is no thread pointer: that points
 * to itself (System V ABI for TLS, variant II), which one of a runtime of its own does not; and of
 * the first thread, whose control block lies elsewhere.
 */
bool thread_stack_parse(struct thread_stack *stack, FILE *maps, uint64_t rsp, uint64_t fs);

#endif
