/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of a thread of another process: is it the thread's own, with nobody else's memory below
 * what is in use? It is where the C library made the thread, which has its control block at the top
 * of the stack (glibc: nptl/allocatestack.c; musl: src/thread/pthread_create.c), or where it is the
 * first thread of its process. A runtime that switches stacks by itself may run on any piece of its
 * heap: a goroutine's stack has a few KiB, and the heap's other objects around it.
 */
#ifndef KVMSCOPE_ATTACH_THREAD_STACK_H
#define KVMSCOPE_ATTACH_THREAD_STACK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/attach/process.h"

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
