/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which task of the guest a stopped vCPU is in, from guest memory alone. The kernel's BTF and
 * symbols give the layout; nothing depends on its version. Kernel pointers are followed through the
 * kernel's own page tables (guest_kernel.paging), which map all of it whatever CR3 contains: with
 * KPTI (Documentation/arch/x86/pti.rst) the CR3 of user code maps almost nothing of it.
 *
 *	vCPU -> CPU      entry 15 of the GDT in use, whose limit is the number of
 *	                 the CPU (arch/x86/include/asm/segment.h, GDT_ENTRY_CPUNODE),
 *	                 verified: that GDT is the CPU's own gdt_page; or by the
 *	                 vCPU's APIC ID, which the kernel stores for each CPU
 *	CPU -> current   __per_cpu_offset[] and the per-CPU variable current_task,
 *	                 from 6.2 to 6.14 a member of pcpu_hot
 *	current -> task  pid, tgid, comm, mm of struct task_struct; start time and
 *	                 parent of its process; its cgroup
 *
 * A context switch (kernel/sched/core.c, __schedule()) switches curr of the runqueue first, then
 * the page tables, then the stack, then current. The reported task is the one whose stack is in
 * use: it called the code that the vCPU executes. User code must also run in its page tables.
 */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_H
#define KVMSCOPE_GUEST_LINUX_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/linux/task_layout.h"

/* The state of an address space at one moment: mappings that are found later are compared by it. */
struct guest_space_state {
	uint64_t number;  /* of the address space, never reused; 0: not read */
	uint64_t changes; /* number of TLB flushes */
};

/* The process of a task, as in struct sample. */
struct guest_process_state {
	uint64_t started; /* 0: not read */
	uint32_t parent;
	char comm[SAMPLE_COMM_SIZE];
};

/* Content of a task's structures at one moment, not verified. */
struct guest_task_snapshot {
	uint64_t at;         /* GVA of its struct task_struct; 0: not read */
	uint64_t stack, mm;  /* GVAs */
	uint64_t page_table; /* GVA of the page tables of MM; 0: none */
	uint64_t set;        /* GVA of its css_set (guest_cgroup.h); 0: not read */
	uint32_t pid, tgid;
	char comm[SAMPLE_COMM_SIZE];
	struct guest_space_state space;     /* of MM */
	struct guest_process_state process; /* guest_tasks_read() does not read it */
};

/* The tasks of a CPU at one moment. */
struct guest_tasks_snapshot {
	struct guest_task_snapshot current;
	struct guest_task_snapshot scheduled; /* read if the stack of CURRENT is not in use */
};

/* A task, as in struct sample. */
struct guest_task {
	uint32_t pid, tid; /* both SAMPLE_TASK_UNKNOWN, or neither */
	/* NUL-terminated; the guest's bytes, read without a lock, as the guest's own perf does. */
	char comm[SAMPLE_COMM_SIZE];
	uint64_t at;  /* GVA of its struct task_struct */
	bool foreign; /* CR3 has another task's page tables, which do not map its memory */
	uint64_t mm;  /* GVA of its struct mm_struct, whose page tables are in CR3; 0: none */
	uint64_t page_table; /* GVA of the page tables of MM; 0: none */
	uint64_t set;        /* GVA of its css_set; only guest_task_identify() sets it, else 0 */
	struct guest_space_state space; /* of MM; only guest_task_identify() sets it */
	/*
	 * Its process, 0 if it was not read. The start time, in ns of the guest's CLOCK_MONOTONIC,
	 * distinguishes it from others with the same pid (0 for the idle task).
	 */
	uint64_t started;
	char process_comm[SAMPLE_COMM_SIZE]; /* of its first thread; NUL-terminated */
	uint32_t parent;                     /* pid */
	struct guest_cgroup cgroup;          /* only guest_task_find_cgroup() sets it */
};

/*
 * Finds the task that a vCPU stopped with REGISTERS is in, without its cgroup. KERNEL_PAGING maps
 * the kernel. False, and TASK unknown, if a part cannot be read or parts do not agree. On the vCPU
 * thread: no lock, allocation or system call; at most 32 reads.
 */
bool guest_task_current(const struct guest_task_layout *layout, const struct guest_view *view,
			const struct guest_paging *kernel_paging,
			const struct guest_registers *registers, struct guest_task *task);

/*
 * Adds the cgroup to a TASK found by guest_task_current(). On the vCPU thread as well; at most 5
 * reads. The cgroup is unknown if it cannot be read.
 */
void guest_task_find_cgroup(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, struct guest_task *task);

/*
 * The same in two steps, for callers that read a vCPU's tasks while it is stopped and evaluate them
 * later. OFFSET turns per-CPU addresses into those of the vCPU. No lock, allocation or system call.
 *
 * guest_tasks_read() needs the vCPU stopped, and makes at most 18 reads. False: not all could be
 * read. guest_task_identify() reads only what does not change while the kernel runs; it fails like
 * guest_task_current().
 */
bool guest_tasks_read(const struct guest_task_layout *layout, const struct guest_view *view,
		      const struct guest_paging *kernel_paging,
		      const struct guest_registers *registers, uint64_t offset,
		      struct guest_tasks_snapshot *snapshot);
bool guest_task_identify(const struct guest_task_layout *layout, const struct guest_view *view,
			 const struct guest_paging *kernel_paging,
			 const struct guest_registers *registers, uint64_t offset,
			 const struct guest_tasks_snapshot *snapshot, struct guest_task *task);

/*
 * Is the task with this kernel call chain of COUNT addresses in the middle of an execve? Its memory
 * may already be the next program's, while its user registers are the last program's. Any thread.
 */
bool guest_task_in_execve(const struct guest_task_layout *layout, const uint64_t *addresses,
			  size_t count);

/* The offset that turns per-CPU addresses into those of the vCPU with REGISTERS. False: unknown. */
bool guest_task_cpu_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			   const struct guest_paging *kernel_paging,
			   const struct guest_registers *registers, uint64_t *offset);
/*
 * The same for the vCPU with APIC_ID (KVM: the id of the vCPU, Documentation/virt/kvm/api.rst,
 * KVM_CREATE_VCPU), for registers that do not identify the CPU. False: the kernel has no such CPU
 * (yet). Reads the IDs of all CPUs: not during a stop.
 */
bool guest_task_apic_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, uint32_t apic_id,
			    uint64_t *offset);

/*
 * Guest processes with memory of their own, and their page tables, from the kernel's list of
 * processes (for_each_process(), include/linux/sched/signal.h), while the guest runs and changes
 * it. Not on a vCPU thread.
 */
struct guest_process {
	uint32_t pid;  /* tgid */
	uint64_t root; /* GPA of its page tables, as CR3 has it in the kernel */
};

/*
 * Fills in at most MAX processes and returns their number. -ENOENT: the kernel's list is unknown;
 * -EAGAIN: it changed during the read, or there are more.
 */
int guest_task_list(const struct guest_task_layout *layout, const struct guest_view *view,
		    const struct guest_paging *kernel_paging, struct guest_process *list,
		    size_t max);

/*
 * Do the tables at ROOT, of a live process, have a second one for user space (KPTI,
 * arch/x86/mm/pti.c)? Then both map user space by the same lower tables, which no two processes
 * share.
 */
bool guest_task_has_pti_pair(const struct guest_view *view, uint64_t root);

#endif
