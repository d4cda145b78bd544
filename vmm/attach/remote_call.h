/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a stopped thread of another process execute system calls, so that it survives if we die at
 * any instruction.
 *
 * No code is written. One PTRACE_SETREGS sets registers that make the call with instructions that
 * the process already has, on a stack below its own (and below the red zone: System V ABI, AMD64
 * supplement, 3.2.2; signal handlers would use the same bytes) that leads back by itself:
 *
 *	syscall				in any library
 *	ret --> mov $15, %eax; syscall	how signal handlers return: rt_sigreturn(2)
 *	        --> its own registers and FPU state, from the frame on the stack
 *
 * We stop the thread after the call, and restore its registers and the bytes under the frame
 * ourselves, so that normally only the call is executed. If we die, the thread executes the
 * rest by itself. The frame is the kernel's for handlers (arch/x86/kernel/signal_64.c, struct
 * rt_sigframe); its alternate signal stack is invalid, which the kernel ignores (restore_altstack()
 * in kernel/signal.c).
 */
#ifndef KVMSCOPE_ATTACH_REMOTE_CALL_H
#define KVMSCOPE_ATTACH_REMOTE_CALL_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "vmm/attach/process.h"
#include "vmm/attach/thread_stop.h"

/* Bytes of any processor's XSAVE area (SDM vol. 1 ch. 13; 11 KiB with AMX), and of a call's
 * result. */
#define REMOTE_XSTATE_MAX 16384
#define REMOTE_RESULTS    512

/* HVAs of instructions in the other process. */
struct remote_code {
	uint64_t call;      /* syscall; ret */
	uint64_t sigreturn; /* mov $15, %eax; syscall */
};

struct remote_frame {
	uint64_t return_to; /* stack pointer of a call; signal handlers use the memory below */
	ucontext_t context;
	uint64_t result[REMOTE_RESULTS / 8];
	_Alignas(64) uint8_t xstate[REMOTE_XSTATE_MAX];
};

struct remote {
	struct thread_stop *stop;
	const struct remote_code *code;
	uint64_t hva;                /* HVA of the frame; 0: none */
	size_t size;                 /* bytes in use */
	struct remote_frame frame;   /* as written to the thread's stack */
	struct remote_frame covered; /* the bytes it replaces */
};

/*
 * Finds the instructions in PROCESS, in at most 64 MiB of each mapping and 512 MiB of all.
 * -ENOTSUP: not found, with the message. For files on FUSE, whose pages may never arrive, reads
 * only what is in memory.
 */
int remote_code_find(struct remote_code *code, const struct vmm_process *process);

/* Searches SIZE bytes of code at HVA for missing instructions. */
void remote_code_search(struct remote_code *code, const uint8_t *bytes, size_t size, uint64_t hva);

/*
 * Prepares the stopped thread for calls; CODE is of its process. The caller owns STOP and CODE.
 * STACK is the lowest HVA of its stack. -EFAULT: no room on the stack, or CODE has disappeared;
 * -ENOTSUP: not in 64-bit code. No messages. Call remote_close() in any case.
 */
int remote_open(struct remote *remote, struct thread_stop *stop, const struct remote_code *code,
		uint64_t stack);

/*
 * Executes ioctl(FD, REQUEST, buffer), and copies SIZE bytes, at most REMOTE_RESULTS, of the buffer
 * to RESULT. Returns the result of the call; -EINTR: not executed because of a signal, which the
 * thread gets when it is resumed; -ESRCH.
 */
int remote_ioctl(struct remote *remote, int fd, unsigned long request, void *result, size_t size);

/* Restores the thread's registers and stack. */
void remote_close(struct remote *remote);

#endif
