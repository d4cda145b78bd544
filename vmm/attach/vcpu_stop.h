/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a vCPU by stopping its thread: whether it is in the guest, and if so, registers and stack.
 *
 * A stop makes the thread leave the guest, and KVM_RUN ends with EINTR, as for any signal without a
 * handler (xfer_to_guest_mode_handle_work() in kernel/entry/kvm.c, kvm_vcpu_block() in
 * virt/kvm/kvm_main.c). The VMM, not the kernel, calls it again, and has to expect EINTR at any
 * time (Documentation/virt/kvm/api.rst, KVM_RUN). kvm_run->immediate_exit is the VMM's and is not
 * changed. Only after KVM_RUN, the thread reads its vCPU's registers for us.
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

/* Bytes of the kernel stack that are copied. */
#define VCPU_STOP_STACK 4096
/* Code pages that are translated. */
#define VCPU_STOP_PAGES 16

struct vcpu_stop_target {
	const struct vmm_process *process;
	struct vmm_memory *memory;
	struct remote_code code;
	struct filter_reader *filters; /* for filters that ptrace(2) does not show; NULL: none */
	uint64_t limit;                /* ns, maximum of a stop */
	bool callchains;
};

enum vcpu_location {
	VCPU_IN_GUEST,
	VCPU_IN_HOST, /* the thread works for the VM, or polls for a wake-up of the guest */
};

struct stopped_vcpu {
	enum vcpu_location location;
	uint64_t time;    /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t stopped; /* ns of the stop */
	/* Those of the guest; in the host, RIP and CPL of the thread. */
	struct guest_registers registers;
	uint16_t kernel_depth, user_depth;
	uint8_t chain_flags;
	uint32_t stack_size; /* 0: not copied */
	uint32_t page_count;
	bool has_tasks;
	struct guest_tasks_snapshot tasks;
	struct attach_page
		pages[VCPU_STOP_PAGES]; /* of user space: see struct attach_guest_state */
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	uint8_t stack[VCPU_STOP_STACK];
};

/* State of a vCPU's thread that is kept between reads. */
struct vcpu_thread {
	struct vmm_vcpu vcpu;
	int fd;                    /* the vCPU's, in that process; -1: unknown */
	unsigned int filters;      /* number of seccomp filters that let our calls pass */
	unsigned int refused;      /* number of filters that do not, or are unreadable; 0: none */
	int refusal;               /* its error */
	struct attach_cpu cpu;     /* where its tasks are, if the layout is known */
	struct thread_stack stack; /* at the last read */
};

/*
 * Checks whether THREAD, with STATUS, can make calls. If it has seccomp filters that were not
 * checked yet, stops it for STOPPED ns, else STOPPED is 0. -ENOTSUP, -EACCES or -EPERM: no, with
 * the message; -ESRCH: it has exited; -EINTR: try again.
 */
int vcpu_stop_check(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		    const struct thread_status *status, uint64_t *stopped);

/*
 * Reads the vCPU; always sets VCPU->stopped. -ETIME: it would have exceeded the limit; -EINTR: a
 * signal came in between; -ESRCH: the thread has exited; -ENODATA: encrypted registers
 * (vcpu_stop_registers_hidden()); -EADDRNOTAVAIL: it does not run on its own stack, where calls are
 * possible (thread_stop.h); -EPERM and others: it cannot be stopped. No messages. REMOTE is working
 * memory.
 */
int vcpu_stop_read(const struct vcpu_stop_target *target, struct vcpu_thread *thread,
		   struct remote *remote, struct stopped_vcpu *vcpu);

/*
 * True for registers that no guest can have: paging without page tables. KVM shows them for SEV-ES,
 * where registers are encrypted (APM vol. 2, 15.35): it is informed of CR0 and EFER
 * (sev_es_init_vmcb() in arch/x86/kvm/svm/sev.c) but not of CR3 and RIP. Newer kernels return an
 * error.
 */
bool vcpu_stop_registers_hidden(const struct kvm_sregs *special);

#endif
