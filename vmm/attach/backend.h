/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A way to sample the vCPUs of somebody else's VM. Each backend is one struct
 * of functions; what they share stands in attach.h.
 *
 *	open -> add each vCPU -> { drain, add, remove }... -> close
 *
 * All on one thread, that of the attachment; no function waits for a sample. What a backend finds
 *goes to its sink, in order of time for each vCPU.
 */
#ifndef KVMSCOPE_ATTACH_BACKEND_H
#define KVMSCOPE_ATTACH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/process.h"
#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/unwind/unwind.h"

/* Of a sample: a callchain is in few pages of code. */
#define ATTACH_PAGES_MAX 32

/* A page of user space that had code that ran or was to be returned to, and where it lay then. */
struct attach_page {
	uint64_t gva, gpa;
};

/* The guest as it stood at a sample: its memory is not what it was any more. */
struct attach_guest_state {
	struct guest_registers registers; /* RSP 0: it is not known */
	/* Their CR3 is not the processor's, which is not known: it is that of the page tables that
	 * the task has, by a kernel that was known to run; 0: of none. */
	bool cr3_of_task;
	bool clock_known;
	uint64_t clock;       /* MSR_KVM_SYSTEM_TIME of the vCPU, if that is known */
	const uint8_t *bytes; /* of the kernel's stack, from RSP on; NULL: it was not taken */
	size_t size;
	const struct guest_tasks_snapshot *tasks; /* of the vCPU; NULL: they were not seen */
	const struct attach_page *pages;          /* each once, at most ATTACH_PAGES_MAX */
	size_t page_count;
};

/* Where the guest's kernel has the tasks of a vCPU. */
struct attach_cpu {
	struct guest_task_layout layout;
	struct guest_paging paging; /* that maps the kernel */
	uint64_t offset;            /* that makes per-CPU addresses those of the vCPU */
};

struct attach_sink {
	/*
	 * One sample. SAMPLE has its time, period, registers as far as they are known (else 0),
	 * CPL, vCPU, host thread, cost, and SAMPLE_HOST if it was taken outside of the guest, or
	 * SAMPLE_OTHER_KERNEL if a guest of the guest ran; its task is not known. CHAIN has the
	 * sampled address first; it may be changed. STACK is NULL where the registers of the guest
	 * are not known. All are valid during the call only.
	 */
	void (*sample)(void *context, struct sample *sample, struct guest_callchain *chain,
		       const struct attach_guest_state *stack);
	/* COUNT samples of vCPU ID were lost before the next one. */
	void (*lost)(void *context, unsigned int id, uint64_t count);
	void *context;
};

/* What is sampled by: decides what the period of a sample counts. */
enum attach_event {
	ATTACH_CLOCK,  /* ns of the vCPU thread's CPU time */
	ATTACH_CYCLES, /* of the processor, in and outside of the guest */
};

struct attach_target {
	const struct vmm_process *process;
	struct vmm_memory *memory;
	unsigned int frequency; /* Hz of each vCPU thread */
	bool own; /* the VM is this process's own: its vCPUs are sampled by the clock in any case */
	unsigned int vcpus_max; /* ids of vCPUs are below, also of those that come later */
	bool callchains;
	struct monitor_address monitor; /* of QEMU, as far as the user told it */
	uint64_t stop_limit; /* ns that a thread may be stopped for, where that is what a backend
				does */
	struct attach_sink sink;
};

/* Of a backend that stops threads, since its start. */
struct attach_stops {
	uint64_t count;
	uint64_t total,
		longest; /* ns, from when a thread was seen to stand still to when it was let go */
	uint64_t over;   /* of COUNT, longer than the limit */
	uint64_t abandoned; /* of OVER, without a sample: it was over before all was read */
	uint64_t asleep;    /* times that a thread slept and was not stopped */
	uint64_t limit;     /* ns */
};

struct attach_source; /* a backend's own */

struct attach_backend {
	const char *name;
	const char *is; /* for messages: what it does, and what it can not */
	bool has_callchains;
	unsigned int frequency_max; /* Hz; 0: what is asked for */
	bool emulated; /* works without KVM, too, and where the process may not be looked at */

	/* Tries what can be tried without a VM: 0, or an error with the message. For kvmscope
	 * doctor. */
	int (*probe)(void);
	/* TARGET outlives it. -ENOTSUP or -EACCES: it does not work here, the message says why. */
	int (*open)(struct attach_source **source, const struct attach_target *target);
	enum attach_event (*event)(const struct attach_source *source);
	/* Tells PROCESS which threads run its vCPUs (vmm_process_set_thread(),
	 * vmm_process_set_vcpus()), as far as it knows, and follows vCPUs that the VMM made anew.
	 * NULL: it does neither. */
	void (*threads)(struct attach_source *source, struct vmm_process *process);
	/* The memslots, where KVM tells them: their number, or -ENOTSUP. At most VMM_SLOTS_MAX.
	 * NULL: never.
	 */
	int (*slots)(struct attach_source *source, struct vmm_slot *slots);
	/* Samples VCPU, whose thread is known, from now on. 0, or -ESRCH: its thread has ended;
	 * others with the message. */
	int (*add)(struct attach_source *source, const struct vmm_vcpu *vcpu);
	void (*remove)(struct attach_source *source, unsigned int id);
	/*
	 * Can be polled: readable when samples wait, after a drain() that found none. NULL: nobody
	 * tells, it is to be drained from time to time.
	 */
	int (*events)(const struct attach_source *source);
	/*
	 * Samples of vCPU ID that are taken from now on have its tasks, where they can be read. CPU
	 * is used during the call only, which may give samples to the sink. NULL: it never sees
	 * tasks.
	 */
	void (*set_cpu)(struct attach_source *source, unsigned int id,
			const struct attach_cpu *cpu);
	/* Samples of all vCPUs together that it can hold between two drain(). NULL: as many as come
	 * in 200 ms.
	 */
	size_t (*room)(const struct attach_source *source);
	/*
	 * Another frequency for all vCPUs, also those that come; 0: no samples. The errors of add()
	 * but -ESRCH, of the first that has one: the others are sampled so. NULL: it can not.
	 */
	int (*set_frequency)(struct attach_source *source, unsigned int frequency);
	/* Gives what was sampled since the last time to the sink. */
	void (*drain)(struct attach_source *source);
	/* Any thread. NULL: it stops nothing. */
	void (*stops)(struct attach_source *source, struct attach_stops *stops);
	/* False: a thread hangs on the VM, and uses what TARGET points to as long as this process
	 * lives. */
	bool (*close)(struct attach_source *source);
};

extern const struct attach_backend attach_bpf, attach_perf, attach_ptrace, attach_qmp;

/* All, the best first; ends with NULL. */
extern const struct attach_backend *const attach_backends[];

/* By its name; NULL: there is none. */
const struct attach_backend *attach_backend_find(const char *name);

#endif
