/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that a stopped thread of another process makes for us, such
 * that it comes to no harm if we die at any instruction.
 *
 * No code is written. The thread is given registers, by one PTRACE_SETREGS, that make the call by
 * instructions which it has anyway, and a stack below its own (and below the red zone: System V
 *ABI, AMD64 supplement, 3.2.2; a signal's handler would use the same bytes) that leads back by
 *itself:
 *
 *	syscall				in any of its libraries
 *	ret --> mov $15, %eax; syscall	what handlers of signals return by: rt_sigreturn(2)
 *	        --> its own registers, and FPU, out of the frame that we put there
 *
 * We stop it behind the call, put its registers back ourselves and the bytes as they were, so that
 *normally nothing but the call is executed. If we die, it goes the rest of that way alone. The
 *frame is what the kernel makes for a handler (arch/x86/kernel/signal_64.c, struct rt_sigframe);
 *its stack for signals is left as it is, as the kernel ignores one that is not valid
 *(restore_altstack() in kernel/signal.c).
 */
#ifndef KVMSCOPE_ATTACH_REMOTE_CALL_H
#define KVMSCOPE_ATTACH_REMOTE_CALL_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "vmm/attach/process.h"
#include "vmm/attach/thread_stop.h"

/* Bytes: XSAVE's area of any processor (SDM vol. 1 ch. 13; with AMX 11 KiB), and of a call's
 * result. */
#define REMOTE_XSTATE_MAX 16384
#define REMOTE_RESULTS    512

/* Instructions of the other process, by their HVAs. */
struct remote_code {
	uint64_t call;      /* syscall; ret */
	uint64_t sigreturn; /* mov $15, %eax; syscall */
};

struct remote_frame {
	uint64_t return_to; /* the stack pointer of a call points here: handlers of signals come
			       below */
	ucontext_t context;
	uint64_t result[REMOTE_RESULTS / 8];
	_Alignas(64) uint8_t xstate[REMOTE_XSTATE_MAX];
};

struct remote {
	struct thread_stop *stop;
	const struct remote_code *code;
	uint64_t place;              /* HVA of the frame */
	size_t size;                 /* bytes of it that are used */
	struct remote_frame frame;   /* as it is put there */
	struct remote_frame covered; /* what was there before */
};

/*
 * -ENOTSUP: PROCESS has no such instructions where they can be read, in 64 MiB of each mapping and
 * 512 MiB of all, with the message. Of files that another process gives the pages of (FUSE), which
 * may never come, it reads what is in memory.
 */
int remote_code_find(struct remote_code *code, const struct vmm_process *process);

/* Looks in SIZE bytes of code at HVA for what is not found yet. */
void remote_code_search(struct remote_code *code, const uint8_t *bytes, size_t size, uint64_t hva);

/*
 * Makes the stopped thread ready for calls, of the process that CODE was found in. STOP and CODE
 * stay the caller's. STACK is the HVA where its stack begins, which nothing is put below. -EFAULT:
 * its stack has no room, or CODE is not there any more; -ENOTSUP: it is not at a place where 64-bit
 * code makes calls. No messages; remote_close() is to be called in any case.
 */
int remote_open(struct remote *remote, struct thread_stop *stop, const struct remote_code *code,
		uint64_t stack);

/*
 * ioctl(FD, REQUEST, where SIZE bytes of RESULT come from), at most REMOTE_RESULTS. What the call
 * returned; -EINTR: it was not made, as a signal waits, which the thread gets when it goes on;
 * -ESRCH.
 */
int remote_ioctl(struct remote *remote, int fd, unsigned long request, void *result, size_t size);

/* The thread has its own registers and stack again. */
void remote_close(struct remote *remote);

#endif
