/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/vcpu_stop.h"

#include <errno.h>
#include <linux/audit.h>
#include <string.h>
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
/* One part in so many of the limit is for what the guest's kernel keeps of its tasks and their
 * memory: 50 of 200 us. What its structures lead to further is looked at when the thread goes on
 * (user_space.h). */
#define WALK_SHARE 4
/* SDM vol. 3, 2.5 and 2.2.1 */

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
	       process_words_vcpu(link, &id) && id == vcpu->id;
}

/* Has it come out of the guest because we stopped it? Where the guest itself left for the VMM, it
 * is the VMM's time. */
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

/* Rights. */

#define CALLS 4

/* That a thread is to make, of its vCPU FD. */
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
				 "thread %d would be killed for it: its seccomp filter does not let "
				 "KVM_GET_REGS, KVM_GET_SREGS, KVM_GET_MP_STATE and rt_sigreturn pass",
				 tid)
		       : error_set(
				 -EPERM,
				 "what the seccomp filters of thread %d let pass can not be read: ptrace(2) "
				 "shows them to who has CAP_SYS_ADMIN and no such filters itself, as the "
				 "sandbox of a service sets them",
				 tid);
}

static int look_at_filters(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
			   unsigned int filters, uint64_t *stopped)
{
	struct seccomp_data calls[CALLS];
	struct thread_stop stop;
	int error = thread_stop(&stop, thread->vcpu.tid);

	if (error == -EPERM || error == -EACCES)
		return error_set(
			error,
			"thread %d may not be stopped: be root, or its user and with CAP_SYS_PTRACE",
			thread->vcpu.tid);
	if (error)
		return error;
	list_calls(target, is_call(&stop.registers) ? (int)stop.registers.rdi : thread->fd, calls);
	error = seccomp_filters_check(stop.tid, calls, CALLS);
	thread_go_on(&stop);
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
			"thread %d has a shadow stack, which does not let it return where it was not called",
			thread->vcpu.tid);
	if (status->seccomp == SECCOMP_MODE_STRICT)
		return explain_filters(-EACCES, thread->vcpu.tid);
	if (status->filters == thread->filters)
		return 0;
	if (status->filters == thread->refused)
		return explain_filters(thread->refusal, thread->vcpu.tid);
	return look_at_filters(target, thread, status->filters, stopped);
}

/* Looking. */

struct looking {
	const struct vcpu_stop_target *target;
	struct vcpu_thread *thread;
	struct thread_stop stop;
	struct remote *remote;
	struct vcpu_look *look;
	uint64_t walked; /* ns that its tasks took */
};

static bool is_time_over(const struct looking *looking)
{
	return stopped_for(&looking->stop) >= looking->target->limit;
}

/* A call, if there is time for one. */
static int call(struct looking *looking, unsigned long request, void *result, size_t size)
{
	if (is_time_over(looking))
		return -ETIME;
	return remote_ioctl(looking->remote, looking->thread->fd, request, result, size);
}

bool vcpu_stop_is_hidden(const struct kvm_sregs *special)
{
	return !special->cr3 && (special->cr0 & CR0_PG || special->efer & EFER_LMA);
}

static int read_registers(struct looking *looking)
{
	struct kvm_regs general;
	struct kvm_sregs special;
	int error = call(looking, KVM_GET_REGS, &general, sizeof(general));

	if (!error)
		error = call(looking, KVM_GET_SREGS, &special, sizeof(special));
	if (!error && vcpu_stop_is_hidden(&special))
		error = -ENODATA;
	if (!error)
		vm_view_copy_registers(&general, &special, &looking->look->registers);
	return error;
}

/*
 * A vCPU that waits for an interrupt does so in KVM_RUN, too, with RIP behind HLT, which is the
 * kernel's alone (SDM vol. 2A); it polls for a while before it sleeps
 * (Documentation/virt/kvm/halt-polling.rst). KVM is asked only where that can be.
 */
static int find_place(struct looking *looking)
{
	const struct guest_registers *registers = &looking->look->registers;
	struct kvm_mp_state state;
	uint8_t code;
	int error;

	if (registers->cpl ||
	    (!guest_read_virtual(&looking->target->memory->view, &registers->paging,
				 registers->rip - 1, &code, 1) &&
	     code != HLT))
		return 0;
	error = call(looking, KVM_GET_MP_STATE, &state, sizeof(state));
	if (!error && state.mp_state != KVM_MP_STATE_RUNNABLE)
		looking->look->place = VCPU_IN_HOST;
	return error;
}

/* To the end of the stack, as far as there is room; or of the page, if no more can be read. */
static void take_stack(struct looking *looking)
{
	const struct guest_view *view = &looking->target->memory->view;
	struct vcpu_look *look = looking->look;
	uint64_t rsp = look->registers.rsp;
	uint32_t size = KERNEL_STACK - (uint32_t)(rsp & (KERNEL_STACK - 1));
	uint32_t page = PAGE - (uint32_t)(rsp & (PAGE - 1));

	if (size > VCPU_STOP_STACK)
		size = VCPU_STOP_STACK;
	if (!guest_read_virtual(view, &look->registers.paging, rsp, look->stack, size))
		look->stack_size = size;
	else if (page < size &&
		 !guest_read_virtual(view, &look->registers.paging, rsp, look->stack, page))
		look->stack_size = page;
}

/* A quarter of the time is left for letting the thread go. */
static void take_callers(struct looking *looking)
{
	struct vcpu_look *look = looking->look;
	uint64_t until = looking->target->limit / 4 * 3, passed = stopped_for(&looking->stop);
	struct guest_callchain chain = { .addresses = look->addresses,
					 .capacity = SAMPLE_CALLCHAIN_MAX,
					 .slow_memory = true,
					 .deadline = clock_ns(CLOCK_MONOTONIC_RAW) +
						     (until > passed ? until - passed : 0) };

	guest_unwind(NULL, &looking->target->memory->view, &look->registers, NULL, &chain);
	look->user_depth = chain.user_depth;
	look->chain_flags = chain.flags;
}

static void take_tasks(struct looking *looking)
{
	const struct attach_cpu *cpu = &looking->thread->cpu;
	struct vcpu_look *look = looking->look;
	uint64_t begun = stopped_for(&looking->stop);

	look->has_tasks =
		!is_time_over(looking) &&
		guest_tasks_read(&cpu->layout, &looking->target->memory->view, &cpu->paging,
				 &look->registers, cpu->offset, &look->tasks);
	looking->walked = stopped_for(&looking->stop) - begun;
}

static bool has_page(const struct vcpu_look *look, uint64_t gva)
{
	for (uint32_t i = 0; i < look->page_count; i++)
		if (look->pages[i].gva == gva)
			return true;
	return false;
}

/* BEGUN: when looking at pages was. */
static bool is_walk_over(const struct looking *looking, uint64_t begun)
{
	uint64_t stopped = stopped_for(&looking->stop);

	return stopped >= looking->target->limit ||
	       looking->walked + stopped - begun >= looking->target->limit / WALK_SHARE;
}

/* Where the code of RIP, then of its callers, lies, as far as there is time. */
static void take_pages(struct looking *looking)
{
	struct vcpu_look *look = looking->look;
	uint64_t begun = stopped_for(&looking->stop);

	for (uint16_t i = 0; i < look->user_depth && look->page_count < VCPU_STOP_PAGES; i++) {
		uint64_t gva = look->addresses[i] & ~(PAGE - 1ull);
		struct guest_translation translation;

		if (has_page(look, gva))
			continue;
		if (is_walk_over(looking, begun) ||
		    guest_translate(&looking->target->memory->view, &look->registers.paging, gva,
				    &translation))
			return;
		look->pages[look->page_count++] = (struct attach_page){ gva, translation.gpa };
	}
}

/* Without time left the sample stays, and has no callers. */
static void take_chain(struct looking *looking)
{
	struct vcpu_look *look = looking->look;

	look->addresses[0] = look->registers.rip;
	look->kernel_depth = !look->registers.cpl;
	look->user_depth = !look->kernel_depth;
	take_tasks(looking);
	if (looking->target->callchains && !look->kernel_depth)
		take_callers(looking);
	else if (looking->target->callchains && !is_time_over(looking))
		take_stack(looking);
	if (look->has_tasks)
		take_pages(looking);
}

/* -EAGAIN: it is not known whose the stack is. That is looked for while the thread runs. */
static int check_stack(const struct looking *looking)
{
	const struct thread_stack *stack = &looking->thread->stack;

	if (!thread_stack_has(stack, looking->stop.registers.rsp))
		return -EAGAIN;
	return stack->own ? 0 : -EADDRNOTAVAIL;
}

static int look_at_guest(struct looking *looking)
{
	int error = check_stack(looking);

	if (error)
		return error;
	error = remote_open(looking->remote, &looking->stop, &looking->target->code,
			    looking->thread->stack.start);
	if (!error)
		error = read_registers(looking);
	if (!error)
		error = find_place(looking);
	if (!error && looking->look->place == VCPU_IN_GUEST)
		take_chain(looking);
	remote_close(looking->remote);
	return error;
}

/* Where the thread will go on. */
static void look_at_host(struct vcpu_look *look, const struct user_regs_struct *registers)
{
	look->place = VCPU_IN_HOST;
	look->registers = (struct guest_registers){ .rip = registers->rip, .cpl = 3 };
}

static int look_once(struct looking *looking)
{
	struct vcpu_look *look = looking->look;
	int error = thread_stop(&looking->stop, looking->thread->vcpu.tid);

	look->place = VCPU_IN_GUEST;
	look->stack_size = look->kernel_depth = look->user_depth = look->chain_flags = 0;
	look->page_count = 0;
	look->has_tasks = false;
	if (error)
		return error;
	look->time = clock_ns(CLOCK_MONOTONIC_RAW);
	if (is_in_guest(looking->target, looking->thread, &looking->stop.registers))
		error = look_at_guest(looking);
	else
		look->place = VCPU_IN_HOST;
	if (look->place == VCPU_IN_HOST)
		look_at_host(look, &looking->stop.registers);
	thread_go_on(&looking->stop);
	look->stopped += stopped_for(&looking->stop);
	return error;
}

/* Also where the thread has another stack than the last time. */
static bool find_stack(const struct looking *looking)
{
	const struct user_regs_struct *registers = &looking->stop.registers;

	return thread_stack_find(&looking->thread->stack, looking->target->process,
				 looking->thread->vcpu.tid, registers->rsp, registers->fs_base);
}

int vcpu_stop_look(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		   struct remote *remote, struct vcpu_look *look)
{
	struct looking looking = {
		.target = target, .thread = thread, .remote = remote, .look = look
	};
	int error;

	look->stopped = 0;
	error = look_once(&looking);
	if (error == -EAGAIN && find_stack(&looking))
		error = look_once(&looking);
	return error == -EAGAIN ? -EINTR : error;
}
