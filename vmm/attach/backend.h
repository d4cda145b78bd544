/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend: a way to sample the vCPUs of a VM that another program started. Each backend is one
 * struct of functions; attachment.h is their user.
 *
 *	open -> add each vCPU -> { drain, add, remove }... -> close
 *
 * All functions run on the attach thread, and none waits for a sample. Samples go to the sink, in
 * order of time for each vCPU.
 */
#ifndef KVMSCOPE_ATTACH_BACKEND_H
#define KVMSCOPE_ATTACH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/process.h"
#include "vmm/attach/user_stacks.h"
#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/vma_layout.h"
#include "vmm/guest/unwind/unwind.h"

/* Pages per sample: the code of a call chain is on few pages. */
#define ATTACH_PAGES_MAX 32

/* A page of user code with an address of the call chain, and its GPA at the time of the sample. */
struct attach_page {
	uint64_t gva, gpa;
};

/* A copy of a stack, from its pointer on. */
struct attach_stack {
	uint64_t gva;
	size_t size; /* bytes; 0: none */
	const uint8_t *bytes;
};

enum attach_stack_kind {
	ATTACH_STACK_IN_USE,      /* of the kernel */
	ATTACH_STACK_INTERRUPTED, /* of the kernel, below that of an entry or exception */
	ATTACH_STACK_BELOW,       /* the task's, below that of an interrupt */
	ATTACH_STACK_USER,
	ATTACH_STACKS,
};

/* The guest's state at the time of a sample; its memory has changed since. */
struct attach_guest_state {
	struct guest_registers registers; /* RSP 0: unknown */
	/* The processor's CR3 is unknown: CR3 is that of the task, according to the kernel that was
	 * known to run; 0: no task. */
	bool cr3_of_task;
	bool clock_known;
	uint64_t clock; /* MSR_KVM_SYSTEM_TIME of the vCPU, if clock_known */
	/* Why the vCPU was outside of the guest, for the samples of that time; NULL: other ones.
	 */
	const char *outside;
	/* The host's call chain, kernel before VMM: the vCPU's thread was outside of the guest. */
	const uint64_t *host;
	uint8_t host_kernel, host_user; /* together at most SAMPLE_HOST_CHAIN_MAX */
	bool copied; /* stacks were copied, and the chain has only the sampled address */
	struct attach_stack stacks[ATTACH_STACKS];
	const struct guest_tasks_snapshot *tasks; /* of the vCPU; NULL: not read */
	const struct attach_page *pages;          /* no duplicates, at most ATTACH_PAGES_MAX */
	size_t page_count;
};

/* Where the guest's kernel has the tasks of a vCPU. */
struct attach_cpu {
	struct guest_task_layout layout;
	struct guest_vma_layout vmas;
	struct guest_paging paging; /* maps the kernel */
	uint64_t offset;            /* added to per-CPU addresses for this vCPU */
	uint64_t irq_top;           /* GVA of the end of its interrupt stack; 0: unknown */
};

struct attach_sink {
	/*
	 * Passes one sample. SAMPLE has time, period, CPL, vCPU, host thread, cost, and registers
	 * (0: unknown), and SAMPLE_HOST if it was recorded outside of the guest, or
	 * SAMPLE_OTHER_KERNEL if a nested guest ran; its task is unknown. CHAIN begins with the
	 * sampled address and may be modified. STACK is NULL if the guest's registers are unknown,
	 * except of samples of time outside: their event is not 0, or STACK has the host's chain.
	 * All arguments are valid during the call only.
	 */
	void (*sample)(void *context, struct sample *sample, struct guest_callchain *chain,
		       const struct attach_guest_state *stack);
	/* COUNT samples of vCPU ID were lost before the next one. */
	void (*lost)(void *context, unsigned int id, uint64_t count);
	void *context;
};

/* The sampled event: the unit of a sample's period. */
enum attach_event {
	ATTACH_CLOCK,  /* ns of the vCPU thread's CPU time */
	ATTACH_CYCLES, /* CPU cycles, in and outside of the guest */
};

/* Events of time outside of the guest: a bit mask. */
enum attach_outside {
	ATTACH_EXITS = 1 << 0,   /* from exits to the next entry */
	ATTACH_OFF_CPU = 1 << 1, /* without a CPU */
};

/* The number of the event KIND of those in WANTED; 0 is the clock. */
static inline uint16_t attach_outside_event(unsigned int wanted, enum attach_outside kind)
{
	return (uint16_t)(1 + __builtin_popcount(wanted & (kind - 1u)));
}

struct attach_target {
	const struct vmm_process *process;
	struct vmm_memory *memory;
	unsigned int frequency;  /* Hz, for each vCPU thread */
	enum attach_event event; /* the requested one */
	unsigned int outside;    /* enum attach_outside */
	bool host_stacks;        /* outside of the guest, record the host's call chain */
	bool own;                /* the VM belongs to this process */
	unsigned int vcpus_max;  /* ids of vCPUs are below it, also those of hot-plugged ones */
	bool callchains;
	struct monitor_address monitor; /* of QEMU, as given by the user */
	uint64_t stop_limit;            /* ns that a thread may be stopped, for backends that do */
	struct attach_sink sink;
};

/* Statistics of a backend that stops threads, since its start. */
struct attach_stops {
	uint64_t count;
	uint64_t total, longest; /* ns between detecting that a thread is stopped and resuming it */
	uint64_t over;           /* stops longer than the limit */
	uint64_t abandoned;      /* part of OVER: time was up before a sample was complete */
	uint64_t asleep;         /* threads that were asleep, and not stopped */
	uint64_t limit;          /* ns */
};

struct attach_source; /* private to the backend */

struct attach_backend {
	const char *name;
	const char *is; /* for messages: what it does, and its limits */
	bool has_callchains;
	bool has_cycles;            /* samples by ATTACH_CYCLES, too */
	bool has_outside;           /* samples time outside of the guest, too */
	unsigned int frequency_max; /* Hz; 0: unlimited */
	bool emulated; /* works without KVM, and for processes that cannot be inspected */

	/* Tries what works without a VM: 0, or an error with the message. For kvmscope doctor. */
	int (*probe)(void);
	/*
	 * TARGET outlives the source. -ENOTSUP or -EACCES: it does not work here, see the message.
	 */
	int (*open)(struct attach_source **source, const struct attach_target *target);
	enum attach_event (*event)(const struct attach_source *source);
	/*
	 * Reports to PROCESS the threads of its vCPUs as far as they are known
	 * (vmm_process_set_thread(), vmm_process_set_vcpus()), and follows vCPUs that the VMM has
	 * recreated. NULL: neither.
	 */
	void (*threads)(struct attach_source *source, struct vmm_process *process);
	/* Reads KVM's memslots, at most VMM_SLOTS_MAX. Returns their number, or -ENOTSUP. NULL:
	 * never available. */
	int (*slots)(struct attach_source *source, struct vmm_slot *slots);
	/* Starts sampling VCPU, whose thread is known. -ESRCH: the thread has exited; other errors
	 * with the message. */
	int (*add)(struct attach_source *source, const struct vmm_vcpu *vcpu);
	void (*remove)(struct attach_source *source, unsigned int id);
	/* A sampled vCPU now runs on the thread of VCPU: cheaper than remove() and add(), whose
	 * errors it has; the vCPU is not sampled then, but not removed. NULL: not supported. */
	int (*move)(struct attach_source *source, const struct vmm_vcpu *vcpu);
	/* A descriptor that is readable when samples wait, after a drain() that found none. NULL:
	 * the backend has to be drained periodically. */
	int (*events)(const struct attach_source *source);
	/* Sets where samples of vCPU ID find their task from now on. CPU is used during the call
	 * only, which may pass samples to the sink. NULL: the backend never reads tasks. */
	void (*set_cpu)(struct attach_source *source, unsigned int id,
			const struct attach_cpu *cpu);
	/* Sets what the next samples of a process copy. NULL: the backend copies no user stacks. */
	void (*set_process)(struct attach_source *source, const struct user_stack *process);
	/* Samples of all vCPUs together that fit between two drain(). NULL: those of 200 ms. */
	size_t (*room)(const struct attach_source *source);
	/*
	 * Sets another frequency for all present and future vCPUs; 0: no samples. Returns the first
	 * error of add() except -ESRCH; the other vCPUs have the new frequency. NULL: not
	 * supported.
	 */
	int (*set_frequency)(struct attach_source *source, unsigned int frequency);
	/* Passes the samples since the last call to the sink. */
	void (*drain)(struct attach_source *source);
	/* Any thread. NULL: the backend stops nothing. */
	void (*stops)(struct attach_source *source, struct attach_stops *stops);
	/* False: a thread is stuck in the VM, and uses what TARGET points to until this process
	 * ends. */
	bool (*close)(struct attach_source *source);
};

extern const struct attach_backend attach_bpf, attach_perf, attach_ptrace, attach_qmp;

/* All backends, the best first; ends with NULL. */
extern const struct attach_backend *const attach_backends[];

/* Looks up a backend by name; NULL: there is none. */
const struct attach_backend *attach_backend_find(const char *name);

#endif
