/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at a vCPU by stopping its thread: where is it, and if in the guest, what are the guest's
 * registers, and its stack.
 *
 * A thread that is to stop leaves the guest, and KVM_RUN ends with EINTR, as by any signal that has
 * no handler (xfer_to_guest_mode_handle_work() in kernel/entry/kvm.c, kvm_vcpu_block() in
 * virt/kvm/kvm_main.c); it is not made anew by the kernel, but by the VMM, which has to expect that
 * at any time (Documentation/virt/kvm/api.rst, KVM_RUN). kvm_run->immediate_exit is the VMM's and
 * stays as it is. Behind KVM_RUN, and nowhere else, the thread reads the registers of its vCPU for
 * us.
 */
#ifndef KVMSCOPE_ATTACH_VCPU_STOP_H
#define KVMSCOPE_ATTACH_VCPU_STOP_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/backend.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/remote_call.h"
#include "vmm/attach/seccomp_filter.h"
#include "vmm/attach/thread_stop.h"

/* Bytes of a kernel's stack that are taken along. */
#define VCPU_STOP_STACK 4096
/* Pages of code whose place is noted. */
#define VCPU_STOP_PAGES 16

struct vcpu_stop_target {
	const struct vmm_process *process;
	struct vmm_memory *memory;
	struct remote_code code;
	struct filter_reader
		*filters; /* for those that ptrace(2) does not show; NULL: there is none */
	uint64_t limit;   /* ns that a thread is stopped for at most */
	bool callchains;
};

enum vcpu_location {
	VCPU_IN_GUEST,
	VCPU_IN_HOST, /* the thread works for the VM; or waits for the guest to wake up, without
			 sleeping */
};

struct stopped_vcpu {
	enum vcpu_location location;
	uint64_t time;    /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t stopped; /* ns that the thread was */
	/* Of the guest; else RIP and CPL are those of the thread. */
	struct guest_registers registers;
	uint16_t kernel_depth, user_depth;
	uint8_t chain_flags;
	uint32_t stack_size; /* 0: of the stack nothing was taken */
	uint32_t page_count;
	bool has_tasks;
	struct guest_tasks_snapshot tasks;
	struct attach_page
		pages[VCPU_STOP_PAGES]; /* of user space: see struct attach_guest_state */
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	uint8_t stack[VCPU_STOP_STACK];
};

/* What is the same from one look at a vCPU to the next. */
struct vcpu_thread {
	struct vmm_vcpu vcpu;
	int fd;               /* the vCPU's, in that process; -1: not known */
	unsigned int filters; /* of seccomp, that were found to let our calls pass */
	unsigned int
		refused; /* filters that were found not to, or that could not be read; 0: none */
	int refusal;     /* the error of those */
	struct attach_cpu cpu;     /* whose tasks are seen, if its layout is known */
	struct thread_stack stack; /* that it had at the last look */
};

/*
 * Can THREAD, whose status is STATUS, make calls for us? Stops it for a moment if it has seccomp
 * filters that were not looked at yet: STOPPED is for how many ns, 0 if it was not. -ENOTSUP,
 * -EACCES or -EPERM: no, with the message; -ESRCH: it has ended; -EINTR: it could not be looked at
 * now.
 */
int vcpu_stop_check(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		    const struct thread_status *status, uint64_t *stopped);

/*
 * Looks. LOOK->stopped is set in any case. -ETIME: it would have taken longer than the limit;
 * -EINTR: a signal came in between; -ESRCH: the thread has ended; -ENODATA: the registers are not
 * the guest's (vcpu_stop_registers_hidden()); -EADDRNOTAVAIL: it does not run on a stack of its
 * own, where it could be made to call (thread_stop.h); -EPERM and others: it can not be stopped. No
 * messages. REMOTE is room for it.
 */
int vcpu_stop_read(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		   struct remote *remote, struct stopped_vcpu *vcpu);

/*
 * Registers that no guest can have: paging without page tables. So KVM shows a guest under SEV-ES,
 * whose own registers are encrypted (APM vol. 2, 15.35): CR0 and EFER it is told of
 * (sev_es_init_vmcb() in arch/x86/kvm/svm/sev.c), CR3 and RIP it is not. Newer kernels refuse to
 * show them.
 */
bool vcpu_stop_registers_hidden(const struct kvm_sregs *special);

#endif
