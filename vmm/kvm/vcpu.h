/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vCPU and the thread that runs it. Functions that are for the vCPU's thread assert it.
 *
 * A kick is a signal to the thread. Its handler sets run->immediate_exit, so that no kick is lost
 * whether the thread is in KVM_RUN or about to enter it (Documentation/virt/kvm/api.rst, 5. The
 * kvm_run structure).
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

/* Signals of vCPU threads. Both kick; the second one also requests a sample. */
#define VCPU_KICK_SIGNAL   (SIGRTMIN)
#define VCPU_SAMPLE_SIGNAL (SIGRTMIN + 1)

/* Why vcpu_run() returned. */
enum vcpu_end {
	VCPU_END_STOPPED,        /* vcpu_stop() was called */
	VCPU_END_SHUTDOWN,       /* triple fault: KVM_EXIT_SHUTDOWN */
	VCPU_END_POWER_OFF,      /* KVM_EXIT_SYSTEM_EVENT shutdown, or requested by a handler */
	VCPU_END_RESET,          /* KVM_EXIT_SYSTEM_EVENT reset, or requested by a handler */
	VCPU_END_DEBUG_EXIT,     /* the guest wrote to the debug-exit port */
	VCPU_END_INTERNAL_ERROR, /* KVM_EXIT_INTERNAL_ERROR, FAIL_ENTRY, or an unknown exit */
	VCPU_END_HOST_ERROR,     /* KVM_RUN failed; error_message() is set */
};

/* The guest's PMU (vmm/pmu). Each operation may be NULL. vcpu_create() and vcpu_destroy() call
 * create and destroy; the others run on the vCPU's thread. */
struct vcpu_pmu_operations {
	/* KVM emulates the PMU with the host's counters: CPUID keeps KVM's PMU leaves. */
	bool by_kvm;
	/* May change TABLE, which becomes the vCPU's CPUID. An error ends vcpu_create(). */
	int (*create)(struct vcpu *vcpu, struct cpuid_table *table);
	void (*destroy)(struct vcpu *vcpu); /* also after a failed or missing create */
	/* The machine is reset; the vCPU has no thread. */
	void (*reset)(struct vcpu *vcpu);
	/* RDMSR and WRMSR of an MSR in the ranges of vm_filter_msrs(). False: #GP(0). */
	bool (*read_msr)(struct vcpu *vcpu, uint32_t index, uint64_t *value);
	bool (*write_msr)(struct vcpu *vcpu, uint32_t index, uint64_t value);
	/* INT3, with vcpu_set_software_breakpoints(). True if it has executed the instruction at
	 * RIP. */
	bool (*breakpoint)(struct vcpu *vcpu);
	/* Before each KVM_RUN, and after each, before its exit is handled. */
	void (*enter)(struct vcpu *vcpu);
	void (*leave)(struct vcpu *vcpu);
};

/* Callbacks for exits, all on the vCPU's thread. io and mmio store the result of reads in DATA. */
struct vcpu_handlers {
	void (*io)(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		   unsigned int size);
	void (*mmio)(void *context, struct vcpu *vcpu, uint64_t gpa, bool write, void *data,
		     unsigned int size);
	/* A sample is due; run->s.regs is valid. May be NULL. */
	void (*sample)(void *context, struct vcpu *vcpu);
	/* The guest was left for a kick, from any source; run->s.regs is valid. May be NULL. */
	void (*kicked)(void *context, struct vcpu *vcpu);
	/* KVM_EXIT_DEBUG, see run->debug.arch and vcpu_debug.h; run->s.regs is valid. May be
	 * NULL if guest debugging is not used. */
	void (*debug)(void *context, struct vcpu *vcpu);
	const struct vcpu_pmu_operations *pmu; /* the guest's; may be NULL */
	void *context;
};

#define VCPU_EXIT_REASONS 64

/* Exits to this process for one reason, and the times until the guest was entered again, in ns. */
struct vcpu_exit_count {
	uint64_t count, ns, ns_max;
};

struct vcpu {
	struct vm *vm;
	unsigned int index; /* number and APIC id */
	int fd;
	struct kvm_run *run; /* run_size bytes */
	size_t run_size;
	pthread_mutex_t lock; /* of thread and thread_id: a thread that has left gets no signal */
	pthread_t thread;     /* valid while thread_id is set */
	_Atomic pid_t thread_id; /* 0 while no thread runs the vCPU */
	const struct vcpu_handlers *handlers;
	atomic_bool stop;        /* vcpu_stop() was called */
	volatile uint32_t kicks; /* signals other than the sample signal; vCPU's thread only */
	volatile sig_atomic_t sample_due;     /* set by the sample signal; vCPU's thread only */
	volatile uint64_t sample_expirations; /* expirations of the sampling clock, merged signals
						 included; vCPU's thread only */
	enum vcpu_end requested_end;          /* valid with end_requested */
	bool end_requested;
	uint64_t exits; /* returns of KVM_RUN other than for a kick */
	/* By exit reason (KVM_EXIT_*, below VCPU_EXIT_REASONS): what the owner reads after the vCPU
	 * has ended; NULL: not counted. */
	struct vcpu_exit_count *exit_counts;
	void *sampler; /* of vmm/sample, opaque here */
	/* Last arguments of KVM_SET_GUEST_DEBUG, of vcpu_debug.c: hardware breakpoints and
	 * steps, and software breakpoints. */
	struct kvm_guest_debug debug;
	bool software_breakpoints;
	struct pmu_vcpu *pmu; /* of vmm/pmu, opaque here; may be NULL */
};

/* Creates vCPU INDEX of VM and adds it to vm->vcpus: sets CPUID, LAPIC lines and MSRs, and
 * enables sync regs. vCPUs are created in order of INDEX. */
int vcpu_create(struct vm *vm, unsigned int index, const struct vcpu_handlers *handlers);
void vcpu_destroy(struct vcpu *vcpu);

/* Installs the process's handlers of the kick signals. For vcpu_create(). */
void vcpu_install_signals(void);

/* Makes the calling thread the vCPU's, blocks all signals but the kicks, and runs the guest
 * until it ends. error_message() is set after the two errors and after a triple fault. */
enum vcpu_end vcpu_run(struct vcpu *vcpu);

/* Binds the vCPU to the calling thread in KVM, which otherwise happens in the first KVM_RUN
 * (virt/kvm/kvm_main.c, kvm_vcpu_ioctl()). Before vcpu_run(), on the same thread. */
void vcpu_bind_thread(struct vcpu *vcpu);

/* For handlers: ends vcpu_run() with END after the current exit. On the vCPU's thread. */
void vcpu_request_end(struct vcpu *vcpu, enum vcpu_end end);

/* Makes KVM_RUN return soon, or at once when it is entered next. Any thread. */
void vcpu_kick(struct vcpu *vcpu);

/* Requests the end of vcpu_run() with VCPU_END_STOPPED. Any thread; returns at once. */
void vcpu_stop(struct vcpu *vcpu);

/* The vCPU that the calling thread runs, NULL on other threads. */
struct vcpu *vcpu_current(void);

/* True if the caller is the vCPU's thread, or the vCPU has none. For assertions. */
bool vcpu_on_thread(const struct vcpu *vcpu);

/* Registers of the stopped vCPU, from sync regs at no cost; valid in handlers. On its thread. */
const struct kvm_regs *vcpu_registers(struct vcpu *vcpu);
const struct kvm_sregs *vcpu_special_registers(struct vcpu *vcpu);

/* True while it waits in HLT; a system call. On the vCPU's thread. */
bool vcpu_is_halted(const struct vcpu *vcpu);

/* True while it runs a nested guest, which then owns the registers. A system call if the VM has
 * nested virtualization. On the vCPU's thread. */
bool vcpu_runs_nested(const struct vcpu *vcpu);

/* Before the first vcpu_run(), or on the vCPU's thread. */
int vcpu_set_registers(struct vcpu *vcpu, const struct kvm_regs *registers);
int vcpu_set_special_registers(struct vcpu *vcpu, const struct kvm_sregs *registers);

/*
 * Offset of the guest's TSC from the host's in cycles, modulo 2^64, if it is the same on all vCPUs
 * (KVM_VCPU_TSC_OFFSET, Documentation/virt/kvm/devices/vcpu.rst; Linux 5.16). Call it while none
 * of them runs; later writes of the guest to its TSC are not covered. -ENXIO if this KVM does not
 * report the offset, -ENODATA if the vCPUs disagree.
 */
int vm_tsc_offset(const struct vm *vm, uint64_t *offset);

/* error_set() for an ioctl that failed with errno: "vCPU N: this host's KVM refused WHAT". -errno.
 */
int vcpu_refused(const struct vcpu *vcpu, const char *what);

/* The ioctl REQUEST of the vCPU. 0, or vcpu_refused() of WHAT. */
int vcpu_ioctl(const struct vcpu *vcpu, unsigned long request, const void *argument,
	       const char *what);

#endif
