/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/vcpu_stop.h"

#include <errno.h>
#include <linux/audit.h>
#include <sys/syscall.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/seccomp_filter.h"
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/unwind.h"
#include "vmm/sample/vm_view.h"

#define PAGE 4096u
/* arch/x86/include/asm/page_64_types.h, THREAD_SIZE and IRQ_STACK_SIZE */
#define KERNEL_STACK (16u << 10)
#define HLT          0xf4
/* Fraction of the limit for reading the guest's tasks and their pages: 50 of 200 us. What they
 * refer to is read later (user_space.h). */
#define WALK_SHARE 4

static uint64_t stopped_for(const struct thread_stop *stop)
{
	return clock_ns(CLOCK_MONOTONIC) - stop->since;
}

static bool is_call(const struct user_regs_struct *registers)
{
	return registers->orig_rax == SYS_ioctl && (uint32_t)registers->rsi == KVM_RUN;
}

static bool is_vcpu(const struct vmm_process *process, const struct vmm_vcpu *vcpu, int fd)
{
	unsigned int id;
	char link[64];

	return proc_read_link(process->directory, fd, link, sizeof(link)) &&
	       proc_parse_vcpu_link(link, &id) && id == vcpu->id;
}

/* True if our stop ended the guest's execution. If the guest left for the VMM by itself, the
 * time is the VMM's. */
static bool is_in_guest(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
			const struct user_regs_struct *registers)
{
	int fd = (int)registers->rdi;

	if (!is_call(registers) || (int)registers->rax != -EINTR)
		return false;
	if (fd != thread->fd && !is_vcpu(target->process, &thread->vcpu, fd))
		return false;
	thread->fd = fd;
	return true;
}

/* Permission */

#define CALLS 4

/* The calls that a thread will make on its vCPU FD. */
static void list_calls(const struct vcpu_stop_target *target, int fd, struct seccomp_data *calls)
{
	const struct seccomp_data ioctl = { .nr = SYS_ioctl,
					    .arch = AUDIT_ARCH_X86_64,
					    .instruction_pointer = target->code.call + 2,
					    .args = { (unsigned int)fd } };
	static const unsigned long requests[] = { KVM_GET_REGS, KVM_GET_SREGS, KVM_GET_MP_STATE };

	for (size_t i = 0; i < CALLS; i++)
		calls[i] = ioctl;
	for (size_t i = 0; i < CALLS - 1; i++)
		calls[i].args[1] = requests[i];
	calls[CALLS - 1].nr = SYS_rt_sigreturn;
}

static int explain_filters(int error, pid_t tid)
{
	return error == -EACCES
		       ? error_set(
				 -EACCES,
				 "thread %d would be killed: its seccomp filter forbids KVM_GET_REGS, "
				 "KVM_GET_SREGS, KVM_GET_MP_STATE or rt_sigreturn",
				 tid)
		       : error_set(
				 -EPERM,
				 "cannot read the seccomp filters of thread %d: ptrace(2) shows them "
				 "only with CAP_SYS_ADMIN, and to processes without such filters, as "
				 "the sandbox of a service sets them",
				 tid);
}

static int check_filters(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
			 unsigned int filters, uint64_t *stopped)
{
	struct seccomp_data calls[CALLS];
	struct thread_stop stop;
	int error = thread_stop(&stop, thread->vcpu.tid);

	if (error == -EPERM || error == -EACCES)
		return error_set(error,
				 "thread %d may not be stopped: run as root, or as its user with "
				 "CAP_SYS_PTRACE",
				 thread->vcpu.tid);
	if (error)
		return error;
	list_calls(target, is_call(&stop.registers) ? (int)stop.registers.rdi : thread->fd, calls);
	error = seccomp_filters_check(stop.tid, calls, CALLS);
	thread_resume(&stop);
	*stopped = stopped_for(&stop);
	if (error == -EPERM && target->filters)
		error = filter_reader_check(target->filters, stop.tid, filters, calls, CALLS);
	if (!error) {
		thread->filters = filters;
		return 0;
	}
	thread->refused = filters;
	thread->refusal = error;
	return explain_filters(error, thread->vcpu.tid);
}

int vcpu_stop_check(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		    const struct thread_status *status, uint64_t *stopped)
{
	*stopped = 0;
	if (status->shadow_stack)
		return error_set(
			-ENOTSUP,
			"thread %d has a shadow stack, which prevents returns to places that "
			"did not call",
			thread->vcpu.tid);
	if (status->seccomp == SECCOMP_MODE_STRICT)
		return explain_filters(-EACCES, thread->vcpu.tid);
	if (status->filters == thread->filters)
		return 0;
	if (status->filters == thread->refused)
		return explain_filters(thread->refusal, thread->vcpu.tid);
	return check_filters(target, thread, status->filters, stopped);
}

/* Reading */

struct context {
	const struct vcpu_stop_target *target;
	struct vcpu_thread *thread;
	struct thread_stop stop;
	struct remote *remote;
	struct stopped_vcpu *vcpu;
	uint64_t walked; /* ns spent on its tasks */
};

static bool is_time_over(const struct context *context)
{
	return stopped_for(&context->stop) >= context->target->limit;
}

/* Makes a call if there is time. */
static int call(struct context *context, unsigned long request, void *result, size_t size)
{
	if (is_time_over(context))
		return -ETIME;
	return remote_ioctl(context->remote, context->thread->fd, request, result, size);
}

bool vcpu_stop_registers_hidden(const struct kvm_sregs *special)
{
	return !special->cr3 && (special->cr0 & CR0_PG || special->efer & EFER_LMA);
}

static int read_registers(struct context *context)
{
	struct kvm_regs general;
	struct kvm_sregs special;
	int error = call(context, KVM_GET_REGS, &general, sizeof(general));

	if (!error)
		error = call(context, KVM_GET_SREGS, &special, sizeof(special));
	if (!error && vcpu_stop_registers_hidden(&special))
		error = -ENODATA;
	if (!error)
		vm_view_copy_registers(&general, &special, &context->vcpu->registers);
	return error;
}

/*
 * A vCPU that waits for an interrupt is in KVM_RUN, too, with RIP after a HLT of the kernel (SDM
 * vol. 2A); it polls before it sleeps (Documentation/virt/kvm/halt-polling.rst). KVM is queried
 * only after a HLT.
 */
static int find_location(struct context *context)
{
	const struct guest_registers *registers = &context->vcpu->registers;
	struct kvm_mp_state state;
	uint8_t code;
	int error;

	if (registers->cpl ||
	    (!guest_read_virtual(&context->target->memory->view, &registers->paging,
				 registers->rip - 1, &code, 1) &&
	     code != HLT))
		return 0;
	error = call(context, KVM_GET_MP_STATE, &state, sizeof(state));
	if (!error && state.mp_state != KVM_MP_STATE_RUNNABLE)
		context->vcpu->location = VCPU_IN_HOST;
	return error;
}

/* Copies up to the end of the stack, if there is room, or of the page. */
static void read_stack(struct context *context)
{
	const struct guest_view *view = &context->target->memory->view;
	struct stopped_vcpu *vcpu = context->vcpu;
	uint64_t rsp = vcpu->registers.rsp;
	uint32_t size = KERNEL_STACK - (uint32_t)(rsp & (KERNEL_STACK - 1));
	uint32_t page = PAGE - (uint32_t)(rsp & (PAGE - 1));

	if (size > VCPU_STOP_STACK)
		size = VCPU_STOP_STACK;
	if (!guest_read_virtual(view, &vcpu->registers.paging, rsp, vcpu->stack, size))
		vcpu->stack_size = size;
	else if (page < size &&
		 !guest_read_virtual(view, &vcpu->registers.paging, rsp, vcpu->stack, page))
		vcpu->stack_size = page;
}

/* Leaves a quarter of the time for resuming the thread. */
static void read_callers(struct context *context)
{
	struct stopped_vcpu *vcpu = context->vcpu;
	uint64_t until = context->target->limit / 4 * 3, passed = stopped_for(&context->stop);
	struct guest_callchain chain = { .addresses = vcpu->addresses,
					 .capacity = SAMPLE_CALLCHAIN_MAX,
					 .slow_memory = true,
					 .deadline = clock_ns(CLOCK_MONOTONIC_RAW) +
						     (until > passed ? until - passed : 0) };

	guest_unwind(NULL, &context->target->memory->view, &vcpu->registers, NULL, &chain);
	vcpu->user_depth = chain.user_depth;
	vcpu->chain_flags = chain.flags;
}

static void read_tasks(struct context *context)
{
	const struct attach_cpu *cpu = &context->thread->cpu;
	struct stopped_vcpu *vcpu = context->vcpu;
	uint64_t begun = stopped_for(&context->stop);

	vcpu->has_tasks =
		!is_time_over(context) &&
		guest_tasks_read(&cpu->layout, &context->target->memory->view, &cpu->paging,
				 &vcpu->registers, cpu->offset, &vcpu->tasks);
	context->walked = stopped_for(&context->stop) - begun;
}

static bool has_page(const struct stopped_vcpu *vcpu, uint64_t gva)
{
	for (uint32_t i = 0; i < vcpu->page_count; i++)
		if (vcpu->pages[i].gva == gva)
			return true;
	return false;
}

/* BEGUN: start of reading pages. */
static bool is_walk_over(const struct context *context, uint64_t begun)
{
	uint64_t stopped = stopped_for(&context->stop);

	return stopped >= context->target->limit ||
	       context->walked + stopped - begun >= context->target->limit / WALK_SHARE;
}

/* Translates the code pages of RIP and its callers while there is time. */
static void read_pages(struct context *context)
{
	struct stopped_vcpu *vcpu = context->vcpu;
	uint64_t begun = stopped_for(&context->stop);

	for (uint16_t i = 0; i < vcpu->user_depth && vcpu->page_count < VCPU_STOP_PAGES; i++) {
		uint64_t gva = vcpu->addresses[i] & ~(PAGE - 1ull);
		struct guest_translation translation;

		if (has_page(vcpu, gva))
			continue;
		if (is_walk_over(context, begun) ||
		    guest_translate(&context->target->memory->view, &vcpu->registers.paging, gva,
				    &translation))
			return;
		vcpu->pages[vcpu->page_count++] = (struct attach_page){ gva, translation.gpa };
	}
}

/* Without time left the sample has no callers. */
static void read_chain(struct context *context)
{
	struct stopped_vcpu *vcpu = context->vcpu;

	vcpu->addresses[0] = vcpu->registers.rip;
	vcpu->kernel_depth = !vcpu->registers.cpl;
	vcpu->user_depth = !vcpu->kernel_depth;
	read_tasks(context);
	if (context->target->callchains && !vcpu->kernel_depth)
		read_callers(context);
	else if (context->target->callchains && !is_time_over(context))
		read_stack(context);
	if (vcpu->has_tasks)
		read_pages(context);
}

/* -EAGAIN: the stack is unknown, and is searched for while the thread runs. */
static int check_stack(const struct context *context)
{
	const struct thread_stack *stack = &context->thread->stack;

	if (!thread_stack_has(stack, context->stop.registers.rsp))
		return -EAGAIN;
	return stack->own ? 0 : -EADDRNOTAVAIL;
}

static int read_guest(struct context *context)
{
	int error = check_stack(context);

	if (error)
		return error;
	error = remote_open(context->remote, &context->stop, &context->target->code,
			    context->thread->stack.start);
	if (!error)
		error = read_registers(context);
	if (!error)
		error = find_location(context);
	if (!error && context->vcpu->location == VCPU_IN_GUEST)
		read_chain(context);
	remote_close(context->remote);
	return error;
}

static int read_once(struct context *context)
{
	struct stopped_vcpu *vcpu = context->vcpu;
	int error = thread_stop(&context->stop, context->thread->vcpu.tid);

	vcpu->location = VCPU_IN_GUEST;
	vcpu->stack_size = vcpu->kernel_depth = vcpu->user_depth = vcpu->chain_flags = 0;
	vcpu->page_count = 0;
	vcpu->has_tasks = false;
	if (error)
		return error;
	vcpu->time = clock_ns(CLOCK_MONOTONIC_RAW);
	if (is_in_guest(context->target, context->thread, &context->stop.registers))
		error = read_guest(context);
	else
		vcpu->location = VCPU_IN_HOST;
	if (vcpu->location == VCPU_IN_HOST)
		vcpu->registers =
			(struct guest_registers){ .rip = context->stop.registers.rip, .cpl = 3 };
	thread_resume(&context->stop);
	vcpu->stopped += stopped_for(&context->stop);
	return error;
}

/* Also if the thread has changed its stack. */
static bool find_stack(const struct context *context)
{
	const struct user_regs_struct *registers = &context->stop.registers;

	return thread_stack_find(&context->thread->stack, context->target->process,
				 context->thread->vcpu.tid, registers->rsp, registers->fs_base);
}

int vcpu_stop_read(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		   struct remote *remote, struct stopped_vcpu *vcpu)
{
	struct context context = {
		.target = target, .thread = thread, .remote = remote, .vcpu = vcpu
	};
	int error;

	vcpu->stopped = 0;
	error = read_once(&context);
	if (error == -EAGAIN && find_stack(&context))
		error = read_once(&context);
	return error == -EAGAIN ? -EINTR : error;
}
