/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/remote_call.h"

#include <assert.h>
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* arch/x86/include/uapi/asm/ucontext.h, which conflicts with ucontext.h */
#define UC_FP_XSTATE         0x1
#define UC_SIGCONTEXT_SS     0x2
#define UC_STRICT_RESTORE_SS 0x4
/* Invalid flags, so that the kernel ignores the stack. */
#define SS_INVALID 0x7fff

#define RED_ZONE 128
#define USER_CS  0x33 /* 64-bit code: arch/x86/include/asm/segment.h */

/* The area of XSAVE: SDM vol. 1, 13.4. */
#define XSAVE_LEGACY   512
#define XSAVE_HEADER   64
#define XSAVE_FEATURES 63
#define XSAVE_SOFTWARE 464          /* reserved for software; ptrace stores the features there */
#define XSAVE_TILES    (1ull << 18) /* AMX; only in threads that requested it */

static const uint8_t call_code[] = { 0x0f, 0x05, 0xc3 };
static const uint8_t sigreturn_code[] = { 0x0f, 0, 0, 0, 0x0f, 0x05 }; /* after b8 or 48 c7 c0 */

/* Length of the opcode before the number 15: mov $15, %eax or %rax. */
static size_t move_length(const uint8_t *at, size_t before)
{
	if (before >= 3 && at[-3] == 0x48 && at[-2] == 0xc7 && at[-1] == 0xc0)
		return 3;
	return before >= 1 && at[-1] == 0xb8 ? 1 : 0;
}

static const uint8_t *find(const uint8_t *from, const uint8_t *end, const uint8_t *code,
			   size_t size)
{
	return memmem(from, (size_t)(end - from), code, size);
}

static uint64_t find_sigreturn(const uint8_t *bytes, size_t size, uint64_t hva)
{
	const uint8_t *at = bytes, *end = bytes + size;

	while ((at = find(at, end, sigreturn_code, sizeof(sigreturn_code)))) {
		size_t length = move_length(at, (size_t)(at - bytes));

		if (length)
			return hva + (uint64_t)(at - bytes) - length;
		at++;
	}
	return 0;
}

void remote_code_search(struct remote_code *code, const uint8_t *bytes, size_t size, uint64_t hva)
{
	const uint8_t *call = find(bytes, bytes + size, call_code, sizeof(call_code));

	if (!code->call && call)
		code->call = hva + (uint64_t)(call - bytes);
	if (!code->sigreturn)
		code->sigreturn = find_sigreturn(bytes, size, hva);
}

static int transfer(const struct remote *remote, long number, const struct iovec *ours,
		    size_t our_count, const struct iovec *theirs, size_t their_count)
{
	size_t size = 0;

	for (size_t i = 0; i < their_count; i++)
		size += theirs[i].iov_len;
	/* The flags are on the stack: an int would leave half of them undefined. */
	return syscall(number, remote->stop->tid, ours, our_count, theirs, their_count, 0ul) ==
			       (long)size
		       ? 0
		       : -EFAULT;
}

/* Saves the bytes under the frame, and checks that the code is still there: libraries may be
 * unloaded. */
static int read_before(struct remote *remote)
{
	uint8_t call[sizeof(call_code)], sigreturn[16];
	const struct iovec ours[] = { { &remote->covered, remote->size },
				      { call, sizeof(call) },
				      { sigreturn, 3 + sizeof(sigreturn_code) } };
	const struct iovec theirs[] = { { (void *)remote->hva, remote->size },
					{ (void *)remote->code->call, sizeof(call) },
					{ (void *)remote->code->sigreturn,
					  3 + sizeof(sigreturn_code) } };

	if (transfer(remote, SYS_process_vm_readv, ours, 3, theirs, 3))
		return -EFAULT;
	return !memcmp(call, call_code, sizeof(call)) &&
			       find_sigreturn(sigreturn, 3 + sizeof(sigreturn_code), 1) == 1
		       ? 0
		       : -EFAULT;
}

static int copy(const struct remote *remote, long number, void *ours, uint64_t theirs, size_t size)
{
	const struct iovec here = { ours, size }, there = { (void *)theirs, size };

	return transfer(remote, number, &here, 1, &there, 1);
}

/* As the kernel's struct sigcontext. */
static void fill_registers(const struct user_regs_struct *from, greg_t *to)
{
	to[REG_R8] = (greg_t)from->r8;
	to[REG_R9] = (greg_t)from->r9;
	to[REG_R10] = (greg_t)from->r10;
	to[REG_R11] = (greg_t)from->r11;
	to[REG_R12] = (greg_t)from->r12;
	to[REG_R13] = (greg_t)from->r13;
	to[REG_R14] = (greg_t)from->r14;
	to[REG_R15] = (greg_t)from->r15;
	to[REG_RDI] = (greg_t)from->rdi;
	to[REG_RSI] = (greg_t)from->rsi;
	to[REG_RBP] = (greg_t)from->rbp;
	to[REG_RBX] = (greg_t)from->rbx;
	to[REG_RDX] = (greg_t)from->rdx;
	to[REG_RAX] = (greg_t)from->rax;
	to[REG_RCX] = (greg_t)from->rcx;
	to[REG_RSP] = (greg_t)from->rsp;
	to[REG_RIP] = (greg_t)from->rip;
	to[REG_EFL] = (greg_t)from->eflags;
	to[REG_CSGSFS] = (greg_t)((from->cs & 0xffff) | (from->ss & 0xffff) << 48);
}

/* End of FEATURE's part of the area, constant per CPU model. CPUID is slow in nested VMs, so it
 * is cached. */
static size_t feature_end(unsigned int feature)
{
	static _Atomic uint32_t ends[XSAVE_FEATURES];
	uint32_t end = atomic_load_explicit(&ends[feature], memory_order_relaxed), length, offset,
		 unused;

	if (end)
		return end;
	__cpuid_count(0xd, feature, length, offset, unused, unused);
	end = offset + length;
	atomic_store_explicit(&ends[feature], end, memory_order_relaxed);
	return end;
}

/* Bytes of an area with FEATURES, in the standard format. */
static size_t xstate_size(uint64_t features)
{
	size_t size = XSAVE_LEGACY + XSAVE_HEADER;

	for (unsigned int i = 2; i < XSAVE_FEATURES; i++)
		if (features >> i & 1 && feature_end(i) > size)
			size = feature_end(i);
	return size;
}

/* Stores the size of the area as in the kernel's own frames: copy_fpstate_to_sigframe(). */
static int close_xstate(uint8_t *xstate, size_t *size)
{
	const uint32_t end = FP_XSTATE_MAGIC2;
	struct _fpx_sw_bytes software = { .magic1 = FP_XSTATE_MAGIC1 };
	uint64_t present;

	memcpy(&software.xstate_bv, xstate + XSAVE_SOFTWARE, sizeof(software.xstate_bv));
	memcpy(&present, xstate + XSAVE_LEGACY, sizeof(present));
	if (!(present & XSAVE_TILES))
		software.xstate_bv &= ~XSAVE_TILES;
	*size = xstate_size(software.xstate_bv);
	if (*size + sizeof(end) > REMOTE_XSTATE_MAX)
		return -ENOTSUP;
	software.xstate_size = (uint32_t)*size;
	software.extended_size = (uint32_t)(*size + sizeof(end));
	memcpy(xstate + XSAVE_SOFTWARE, &software, sizeof(software));
	memcpy(xstate + *size, &end, sizeof(end));
	*size += sizeof(end);
	return 0;
}

/* Without XSAVE, frames have only the first part of the area. */
static int fill_legacy(struct remote *remote, size_t *size)
{
	*size = XSAVE_LEGACY;
	return ptrace(PTRACE_GETFPREGS, remote->stop->tid, 0, remote->frame.xstate) ? -ENOTSUP : 0;
}

static int fill_xstate(struct remote *remote, size_t *size)
{
	struct iovec area = { remote->frame.xstate, REMOTE_XSTATE_MAX };

	if (ptrace(PTRACE_GETREGSET, remote->stop->tid, (void *)NT_X86_XSTATE, &area))
		return fill_legacy(remote, size);
	if (area.iov_len < XSAVE_LEGACY + XSAVE_HEADER)
		return -ENOTSUP;
	remote->frame.context.uc_flags |= UC_FP_XSTATE;
	return close_xstate(remote->frame.xstate, size);
}

static int fill_frame(struct remote *remote)
{
	const struct user_regs_struct *own = &remote->stop->registers;
	struct remote_frame *frame = &remote->frame;
	ucontext_t *context = &frame->context;
	size_t size;

	if (own->cs != USER_CS || fill_xstate(remote, &size))
		return -ENOTSUP;
	remote->size = offsetof(struct remote_frame, xstate) + size;
	remote->hva = (own->rsp - RED_ZONE - remote->size) & ~63ull;
	frame->return_to = remote->code->sigreturn;
	context->uc_flags |= UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	context->uc_stack.ss_flags = SS_INVALID;
	context->uc_mcontext.fpregs =
		(fpregset_t)(remote->hva + offsetof(struct remote_frame, xstate));
	fill_registers(own, context->uc_mcontext.gregs);
	return ptrace((enum __ptrace_request)PTRACE_GETSIGMASK, remote->stop->tid, sizeof(uint64_t),
		      &context->uc_sigmask)
		       ? -errno
		       : 0;
}

int remote_open(struct remote *remote, struct thread_stop *stop, const struct remote_code *code,
		uint64_t stack)
{
	int error;

	remote->stop = stop;
	remote->code = code;
	remote->hva = 0;
	memset(&remote->frame, 0, offsetof(struct remote_frame, xstate));
	error = fill_frame(remote);
	if (!error && (remote->hva < stack || remote->hva > stop->registers.rsp))
		error = -EFAULT;
	if (!error)
		error = read_before(remote);
	if (!error)
		error = copy(remote, SYS_process_vm_writev, &remote->frame, remote->hva,
			     remote->size);
	if (error)
		remote->hva = 0;
	return error;
}

int remote_ioctl(struct remote *remote, int fd, unsigned long request, void *result, size_t size)
{
	uint64_t hva = remote->hva + offsetof(struct remote_frame, result);
	struct user_regs_struct registers = remote->stop->registers;
	int error;

	assert(size <= REMOTE_RESULTS);
	registers.rip = remote->code->call;
	registers.rsp = remote->hva;
	registers.rax = SYS_ioctl;
	registers.orig_rax = (unsigned long long)-1; /* no system call to restart */
	registers.rdi = (unsigned int)fd;
	registers.rsi = request;
	registers.rdx = hva;
	error = thread_call(remote->stop, &registers);
	if (error)
		return error;
	if (ptrace(PTRACE_GETREGS, remote->stop->tid, 0, &registers))
		return -ESRCH;
	if ((int)registers.rax < 0)
		return (int)registers.rax;
	error = copy(remote, SYS_process_vm_readv, result, hva, size);
	return error ? error : (int)registers.rax;
}

/* Registers first: the frame is needed until they are restored. */
void remote_close(struct remote *remote)
{
	if (!remote->hva)
		return;
	if (!ptrace(PTRACE_SETREGS, remote->stop->tid, 0, &remote->stop->registers))
		copy(remote, SYS_process_vm_writev, &remote->covered, remote->hva, remote->size);
	remote->hva = 0;
}
