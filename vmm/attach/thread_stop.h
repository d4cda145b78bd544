/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops a thread of another process for a moment: ptrace(2).
 *
 * The tracer may die at any instruction. The kernel then detaches the thread (exit_ptrace() in
 * kernel/ptrace.c), which continues with its current registers; they are always valid. Stops are
 * read without consuming them (WNOWAIT): a consumed one has no signal any longer
 * (wait_task_stopped() in kernel/exit.c), which would be lost with us. PTRACE_O_TRACESYSGOOD marks
 * system call stops, which would otherwise leave a SIGTRAP that kills (ptrace_report_syscall() in
 * include/linux/ptrace.h).
 *
 * The tracer may also be stopped at any instruction: call stop_guard_begin() before.
 *
 * A thread is traced only while it is stopped, so that its signals are otherwise unaffected. The
 * kernel requires all calls for a stop on one thread of ours.
 */
#ifndef KVMSCOPE_ATTACH_THREAD_STOP_H
#define KVMSCOPE_ATTACH_THREAD_STOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/user.h>
#include <time.h>

#include "shared/thread_check.h"
#include "vmm/attach/process.h"

struct thread_stop {
	struct thread_check tracer;
	pid_t tid;
	int signal;                        /* to deliver when it is resumed; 0: none */
	uint64_t since;                    /* ns, CLOCK_MONOTONIC: when the stop was detected */
	struct user_regs_struct registers; /* at the stop */
};

/*
 * Stops thread TID, interrupting its system call if possible. 0: it is stopped; thread_resume() has
 * to follow. -EINTR: a signal was being delivered, or it is stopped by others; it was resumed.
 * -EPERM or -EACCES: it may not be traced, or another tracer has it; -ESRCH: it has exited. No
 * messages.
 */
int thread_stop(struct thread_stop *stop, pid_t tid);

/* Runs the stopped thread with REGISTERS until its next system call has ended. -EINTR: not
 * executed because of a signal; -ESRCH. */
int thread_call(struct thread_stop *stop, const struct user_regs_struct *registers);

/* Resumes the thread with its current registers or, if it was killed, reaps it. */
void thread_resume(struct thread_stop *stop);

/*
 * Detects whether a thread of another process runs on its own stack, with no other data below what
 * is in use: on a stack made by the C library, which has the thread's control block at its top
 * (glibc: nptl/allocatestack.c; musl: src/thread/pthread_create.c), or on that of the first thread.
 * A runtime that switches stacks itself may run on any heap memory: a goroutine's stack has a few
 * KiB, next to other objects.
 */

/* The mapping of the stack, [start, end); END 0: unknown. */
struct thread_stack {
	uint64_t start, end;
	bool own; /* the thread's, as above */
};

/* True if RSP is in STACK. */
bool thread_stack_has(const struct thread_stack *stack, uint64_t rsp);

/*
 * Finds the stack of thread TID of PROCESS, with its registers RSP and FS (its thread pointer), in
 * the mappings of the process; takes about a millisecond if there are very many. False: RSP is not
 * mapped, or the process cannot be inspected. Any thread.
 */
bool thread_stack_find(struct thread_stack *stack, const struct vmm_process *process, pid_t tid,
		       uint64_t rsp, uint64_t fs);

/*
 * The same for MAPS, the text of /proc/PID/maps. FS is 0 if it is not a thread pointer, which would
 * point to itself (System V ABI for TLS, variant II), and for the first thread, whose control block
 * is elsewhere.
 */
bool thread_stack_parse(struct thread_stack *stack, FILE *maps, uint64_t rsp, uint64_t fs);

/*
 * Ends a stop if we are stopped ourselves meanwhile.
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
 * One per thread that stops others; the thread handles SIGCONT from then on. Zero-initialized.
 */
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
