/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vCPU and the thread that runs it. All that is called "on the vCPU's
 * thread" is asserted to be.
 *
 * A kick is a signal to the thread whose handler sets run->immediate_exit,
 * so that none is lost whether the thread is in KVM_RUN or on its way to it
 * (Documentation/virt/kvm/api.rst, 5. The kvm_run structure).
 */
#ifndef KVMSCOPE_KVM_VCPU_H
#define KVMSCOPE_KVM_VCPU_H

#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cpuid_table;
struct pmu_vcpu;
struct vcpu;
struct vm;

/* Signals that vCPU threads take: both kick; the second also asks for a sample. */
#define VCPU_KICK_SIGNAL   (SIGRTMIN)
#define VCPU_SAMPLE_SIGNAL (SIGRTMIN + 1)

/* Why vcpu_run() came back. */
enum vcpu_end {
	VCPU_END_STOPPED,        /* vcpu_stop() was called */
	VCPU_END_SHUTDOWN,       /* triple fault: KVM_EXIT_SHUTDOWN */
	VCPU_END_POWER_OFF,      /* KVM_EXIT_SYSTEM_EVENT shutdown, or a handler asked for it */
	VCPU_END_RESET,          /* a handler asked for it, or KVM_EXIT_SYSTEM_EVENT reset */
	VCPU_END_DEBUG_EXIT,     /* the guest wrote the debug-exit port */
	VCPU_END_INTERNAL_ERROR, /* KVM_EXIT_INTERNAL_ERROR, FAIL_ENTRY, or an unknown exit */
	VCPU_END_HOST_ERROR,     /* KVM_RUN failed; the error message is set */
};

/*
 * What the guest's PMU (vmm/pmu) does for a vCPU; each may be NULL. create and
 * destroy are called by vcpu_create() and vcpu_destroy(), the others on the vCPU's thread.
 */
struct vcpu_pmu_operations {
	/* KVM makes it from the host's counters, as far as it can: CPUID shows what KVM says of it.
	 */
	bool by_kvm;
	/* The vCPU is there, and is going to have TABLE as its CPUID: to be changed. An error ends
	 * vcpu_create(). */
	int (*create)(struct vcpu *vcpu, struct cpuid_table *table);
	void (*destroy)(struct vcpu *vcpu); /* also of one whose create failed or was not reached */
	/* The machine is reset. The vCPU has no thread. May be NULL. */
	void (*reset)(struct vcpu *vcpu);
	/* RDMSR and WRMSR of what vm_filter_msrs() keeps from KVM. False: #GP(0). */
	bool (*read_msr)(struct vcpu *vcpu, uint32_t index, uint64_t *value);
	bool (*write_msr)(struct vcpu *vcpu, uint32_t index, uint64_t value);
	/* INT3, with vcpu_set_software_breakpoints(). True if the instruction at RIP has been
	 * executed. */
	bool (*breakpoint)(struct vcpu *vcpu);
	/* Before each KVM_RUN, and after each, before what it was left for is looked at. */
	void (*enter)(struct vcpu *vcpu);
	void (*leave)(struct vcpu *vcpu);
};

/*
 * What a vCPU needs from those above it; every function is called on the
 * vCPU's thread. io and mmio answer reads into DATA.
 */
struct vcpu_handlers {
	void (*io)(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		   unsigned int size);
	void (*mmio)(void *context, struct vcpu *vcpu, uint64_t gpa, bool write, void *data,
		     unsigned int size);
	/* A sample is due: state in run->s.regs is valid. May be NULL. */
	void (*sample)(void *context, struct vcpu *vcpu);
	/* The guest was left for a kick, whoever wanted it; state as for sample. May be NULL. */
	void (*kicked)(void *context, struct vcpu *vcpu);
	/* KVM_EXIT_DEBUG, see run->debug.arch and vcpu_debug.h; state as for sample. May be NULL if
	 * none is asked for. */
	void (*debug)(void *context, struct vcpu *vcpu);
	/* The guest's PMU; NULL: it has none. */
	const struct vcpu_pmu_operations *pmu;
	void *context;
};

struct vcpu {
	struct vm *vm;
	unsigned int index; /* number and APIC id */
	int fd;
	struct kvm_run *run; /* run_size bytes */
	size_t run_size;
	pthread_mutex_t
		lock;     /* of thread and thread_id: a kick never meets a thread that has left */
	pthread_t thread; /* valid while thread_id is set */
	_Atomic pid_t thread_id; /* 0 while no thread runs it */
	const struct vcpu_handlers *handlers;
	atomic_bool stop;                 /* asked to end */
	volatile uint32_t kicks;          /* signals that were no sample's; only on the thread */
	volatile sig_atomic_t sample_due; /* set by the sample signal; only on the thread */
	volatile uint64_t sample_expirations; /* of the sampling clock, merged signals included;
						 only on the thread */
	enum vcpu_end asked_end;              /* by a handler on the thread, with end_asked */
	bool end_asked;
	uint64_t exits; /* returns of KVM_RUN other than by a kick */
	void *sampler;  /* of vmm/sample, opaque here */
	/* What KVM_SET_GUEST_DEBUG was last told, of vcpu_debug.c: the part of hardware
	 * breakpoints, and the other. */
	struct kvm_guest_debug debug;
	bool software_breakpoints;
	struct pmu_vcpu *pmu; /* of vmm/pmu, opaque here; NULL without */
};

/*
 * Makes vCPU number INDEX of VM and puts it into vm->vcpus: CPUID set,
 * LAPIC lines, sync regs on, MSRs at reset. Vcpus are made in order.
 */
int vcpu_create(struct vm *vm, unsigned int index, const struct vcpu_handlers *handlers);
void vcpu_destroy(struct vcpu *vcpu);

/*
 * Makes the calling thread the vCPU's, blocks all signals but the kicks, and
 * runs the guest until it ends. Why is the result; on the two errors, and on
 * a triple fault, the message is set.
 */
enum vcpu_end vcpu_run(struct vcpu *vcpu);

/*
 * KVM learns which thread runs the vCPU (kernel: virt/kvm/kvm_main.c, kvm_vcpu_ioctl()) from its
 * KVM_RUN; by this it knows the calling one before the guest runs. Before vcpu_run(), on the same
 * thread.
 */
void vcpu_tell_thread(struct vcpu *vcpu);

/* From a handler: end vcpu_run() with END after the present exit. On the vCPU's thread. */
void vcpu_ask_end(struct vcpu *vcpu, enum vcpu_end end);

/* Kick: KVM_RUN returns soon, or at once when next entered. Any thread. */
void vcpu_kick(struct vcpu *vcpu);

/* Ask vcpu_run() to end with VCPU_END_STOPPED. Any thread; returns at once. */
void vcpu_stop(struct vcpu *vcpu);

/* The vCPU that the calling thread runs, NULL on every other thread. */
struct vcpu *vcpu_current(void);

/* Is the caller the vCPU's thread (or has the vCPU none)? For assertions. */
bool vcpu_on_thread(const struct vcpu *vcpu);

/* Registers of the stopped vCPU, from sync regs at no cost, valid in handlers. On the vCPU's
 * thread. */
const struct kvm_regs *vcpu_registers(struct vcpu *vcpu);
const struct kvm_sregs *vcpu_special_registers(struct vcpu *vcpu);

/* Does it wait in HLT? Asks KVM: a system call. On the vCPU's thread. */
bool vcpu_is_halted(const struct vcpu *vcpu);

/*
 * Is it in a guest that its guest runs, whose registers are then those of the vCPU? Asks KVM, a
 * system call, if the VM is one that may (struct vm, nested). On the vCPU's thread.
 */
bool vcpu_runs_nested(const struct vcpu *vcpu);

/* Set both before the first vcpu_run(), or on the vCPU's thread. */
int vcpu_set_registers(struct vcpu *vcpu, const struct kvm_regs *registers);
int vcpu_set_special_registers(struct vcpu *vcpu, const struct kvm_sregs *registers);

#endif
