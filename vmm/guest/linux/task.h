/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which task of the guest a stopped vCPU is in, from guest memory alone. The
 * kernel's BTF and symbols say where things are; nothing is taken from its
 * version. Pointers of the kernel are followed through its own page tables
 * (guest_kernel.paging), which map all of it whatever CR3 holds: under KPTI
 * (Documentation/arch/x86/pti.rst) CR3 of user code maps next to nothing.
 *
 *	vCPU -> CPU      entry 15 of the GDT in use, whose limit is the number of
 *	                 the CPU (arch/x86/include/asm/segment.h, GDT_ENTRY_CPUNODE),
 *	                 checked: that GDT is the CPU's own gdt_page; or by the
 *	                 vCPU's APIC ID, which the kernel keeps for each CPU
 *	CPU -> current   __per_cpu_offset[] and the per-CPU variable current_task,
 *	                 from 6.2 to 6.14 a member of pcpu_hot
 *	current -> task  pid, tgid, comm, mm of struct task_struct; when its process began,
 *	                 and of which one; its cgroup
 *
 * A context switch (kernel/sched/core.c, __schedule()) makes first curr of the
 * runqueue, then the page tables, then the stack, then current those of the
 * next task. The task that is named is the one whose stack is in use: what the
 * vCPU does was called by it. User code has to run in its page tables as well.
 */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_H
#define KVMSCOPE_GUEST_LINUX_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/symbol_table.h"

struct btf;

/*
 * Immutable once read. A per-CPU address and a CPU's offset make the GVA of
 * the CPU's copy. 0 where the kernel has no such thing or it was not found.
 */
struct guest_task_layout {
	bool known;          /* else nothing below holds */
	uint64_t offsets;    /* GVA of __per_cpu_offset[]; 0: a kernel for one CPU */
	uint64_t current;    /* per-CPU address of the pointer to the current task */
	uint64_t gdt_page;   /* per-CPU address of the GDT */
	uint64_t apic_id;    /* per-CPU address of the APIC ID */
	uint32_t cpus;       /* entries of __per_cpu_offset[] */
	uint64_t irq_stack;  /* per-CPU address of the pointer to the top of the interrupt stack */
	uint64_t scheduled;  /* per-CPU address of curr of the runqueue: current, or about to be */
	uint32_t stack_size; /* bytes of a task's stack and of the interrupt stack */
	uint32_t pid, tgid, comm, mm, stack; /* byte offsets in struct task_struct */
	uint32_t page_table;                 /* byte offset of pgd in struct mm_struct */
	uint64_t first; /* GVA of init_task; 0: the list of processes was not found */
	uint32_t list;  /* byte offset of tasks in struct task_struct */
	uint32_t parent, leader,
		started; /* in struct task_struct; parent 0: none of the three is known */
	struct guest_cgroup_layout cgroups;
	/* GVAs of the code that calls whatever gives a task another program's memory; both 0 if not
	 * found. */
	uint64_t execve_start, execve_end;
};

/*
 * From the kernel's SYMBOLS, its PER_CPU symbols (those whose addresses are
 * below the kernel's: they are offsets) and its BTF. -ENOENT: one of the parts
 * is not there; LAYOUT->known is then false. Not on a vCPU thread.
 */
int guest_task_layout_read(struct guest_task_layout *layout, const struct symbols *symbols,
			   const struct symbols *per_cpu, const struct btf *btf);

/* A task, as its structures had it at one moment. Nothing of it was checked. */
struct guest_task_snapshot {
	uint64_t at;         /* GVA of its struct task_struct; 0: it was not looked at */
	uint64_t stack, mm;  /* GVAs */
	uint64_t page_table; /* GVA of that of MM; 0 without one */
	uint64_t set;        /* GVA of its css_set (cgroup.h); 0: it was not looked at */
	uint32_t pid, tgid;
	char comm[SAMPLE_COMM_SIZE];
};

/* The tasks of a CPU at one moment. */
struct guest_tasks_snapshot {
	struct guest_task_snapshot current;
	struct guest_task_snapshot scheduled; /* where that one's stack may not be in use */
};

/* What a task is called; as in struct sample. */
struct guest_task {
	uint32_t pid, tid; /* SAMPLE_TASK_UNKNOWN both, or none */
	/* Ends with a NUL; the guest's bytes, not cleaned, and not locked: as the guest's own perf
	 * reads it.
	 */
	char comm[SAMPLE_COMM_SIZE];
	uint64_t at;  /* GVA of its struct task_struct */
	bool foreign; /* CR3 has another task's page tables: its user memory can not be read by them
		       */
	uint64_t mm;  /* GVA of its struct mm_struct, whose page tables are in CR3; 0: none */
	uint64_t page_table; /* GVA of MM's; 0 without one */
	uint64_t set;        /* GVA of its css_set, by guest_task_identify() alone; else 0 */
	/*
	 * Of its process, by guest_task_current() alone, else 0: when it began, ns of the guest's
	 * CLOCK_MONOTONIC, which tells it from others that had its id, 0 for the idle task; and
	 * whose child it is.
	 */
	uint64_t started;
	char process_comm[SAMPLE_COMM_SIZE]; /* of its first thread; ends with a NUL */
	uint32_t parent;
	struct guest_cgroup cgroup; /* by guest_task_find_cgroup() alone */
};

/*
 * The task that a vCPU is in which is stopped with REGISTERS; KERNEL_PAGING
 * maps the kernel. False, and TASK not known, where any part can not be read
 * or does not agree. Its cgroup is left out. On the vCPU thread: no lock,
 * allocation or system call; at most 32 reads.
 */
bool guest_task_current(const struct guest_task_layout *layout, const struct guest_view *view,
			const struct guest_paging *kernel_paging,
			const struct guest_registers *registers, struct guest_task *task);

/* The cgroup of a TASK that was found so, into it; likewise, at most 5 reads. Not known where it
 * can not be read. */
void guest_task_find_cgroup(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, struct guest_task *task);

/*
 * The two parts of it, for who can read a vCPU's tasks while it stands still and has to judge them
 * later. OFFSET is what makes per-CPU addresses those of the vCPU. guest_tasks_read() needs the
 * vCPU stopped, and makes at most 18 reads; false: not all could be read. guest_task_identify()
 * reads only what does not change while the kernel runs; false as guest_task_current(). No lock,
 * allocation or system call.
 */
bool guest_tasks_read(const struct guest_task_layout *layout, const struct guest_view *view,
		      const struct guest_paging *kernel_paging,
		      const struct guest_registers *registers, uint64_t offset,
		      struct guest_tasks_snapshot *seen);
bool guest_task_identify(const struct guest_task_layout *layout, const struct guest_view *view,
			 const struct guest_paging *kernel_paging,
			 const struct guest_registers *registers, uint64_t offset,
			 const struct guest_tasks_snapshot *seen, struct guest_task *task);

/*
 * Is the task with this kernel part of a callchain, COUNT addresses, in the middle of an execve?
 * Its memory may be the next program's by then, while the registers that it entered the kernel with
 * are the last one's. Any thread.
 */
bool guest_task_in_execve(const struct guest_task_layout *layout, const uint64_t *addresses,
			  size_t count);

/* The offset that makes per-CPU addresses those of the vCPU with REGISTERS. False where it can not
 * be told.
 */
bool guest_task_cpu_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			   const struct guest_paging *kernel_paging,
			   const struct guest_registers *registers, uint64_t *offset);

/*
 * The same for the vCPU with APIC_ID (KVM: the id of the vCPU, Documentation/virt/kvm/api.rst,
 * KVM_CREATE_VCPU), where its registers do not tell. False: the kernel has no such CPU (yet). Not
 * at a stop: it reads the IDs of all CPUs.
 */
bool guest_task_apic_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, uint32_t apic_id,
			    uint64_t *offset);

#endif
