/* SPDX-License-Identifier: Apache-2.0 */
/* Where the guest's kernel has its tasks, by its symbols and BTF. */
#ifndef KVMSCOPE_GUEST_LINUX_TASK_LAYOUT_H
#define KVMSCOPE_GUEST_LINUX_TASK_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/symbol_table.h"

struct btf;

/*
 * Immutable once read. A per-CPU address plus the offset of a CPU is the GVA of that CPU's copy.
 * Members are 0 where the kernel has no such thing or it was not found.
 */
struct guest_task_layout {
	bool known;          /* the rest is valid */
	uint64_t offsets;    /* GVA of __per_cpu_offset[]; 0: a kernel without SMP */
	uint64_t current;    /* per-CPU address of the pointer to the current task */
	uint64_t gdt_page;   /* per-CPU address of the GDT */
	uint64_t apic_id;    /* per-CPU address of the APIC ID */
	uint32_t cpus;       /* entries of __per_cpu_offset[] */
	uint64_t irq_stack;  /* per-CPU address of the pointer to the top of the interrupt stack */
	uint64_t scheduled;  /* per-CPU address of curr of the runqueue: current, or about to be */
	uint32_t stack_size; /* bytes of a task's stack and of the interrupt stack */
	uint32_t pid, tgid, comm, mm, stack; /* byte offsets in struct task_struct */
	uint32_t page_table;                 /* byte offset of pgd in struct mm_struct */
	uint64_t first;                      /* GVA of init_task; 0: no list of processes */
	uint32_t list;                       /* byte offset of tasks in struct task_struct */
	uint32_t parent, leader, started;    /* in struct task_struct; parent 0: unknown */
	struct guest_cgroup_layout cgroups;
	/* GVAs of the function through which execve() replaces a task's memory; 0: not found. */
	uint64_t execve_start, execve_end;
};

/*
 * Fills in LAYOUT from the kernel's SYMBOLS, its PER_CPU symbols (addresses below the kernel's,
 * which are offsets) and its BTF. -ENOENT: a part is missing; LAYOUT->known is false. Not on a vCPU
 * thread.
 */
int guest_task_layout_read(struct guest_task_layout *layout, const struct symbols *symbols,
			   const struct symbols *per_cpu, const struct btf *btf);

/*
 * Fills in the parts that follow from symbols alone; LAYOUT is zeroed. `current` stays 0 where it
 * is a member of pcpu_hot. False: a required part has no symbol. Not on a vCPU thread.
 */
bool guest_task_layout_by_symbols(struct guest_task_layout *layout, const struct symbols *symbols,
				  const struct symbols *per_cpu);

/* The address of per-CPU symbol NAME: until 6.14 an offset from 0 up, in PER_CPU; later in the
 * image as all others. False: there is none. Any thread. */
bool guest_find_per_cpu(const struct symbols *symbols, const struct symbols *per_cpu,
			const char *name, uint64_t *address);
/* Sets *STACK to the GVA of the stack of init_task (include/linux/init_task.h). Any thread. */
bool guest_task_first_stack(const struct symbols *symbols, uint64_t *stack);

#endif
