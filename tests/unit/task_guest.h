/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of two CPUs and two tasks, for guest_task_current(): CPU 0 runs task 1, a thread, and CPU
 * 1 task 2. The direct map at DIRECT covers all memory, and each CPU's GDT is mapped in the entry
 * area. For tests.
 */
#ifndef KVMSCOPE_TESTS_UNIT_TASK_GUEST_H
#define KVMSCOPE_TESTS_UNIT_TASK_GUEST_H

#include "tests/unit/flat_guest.h"
#include "vmm/guest/linux/task.h"

#define TASK_GUEST_SIZE (8u << 20)
#define DIRECT          0xffff888000000000ull
#define ENTRY_AREA      0xfffffe0000001000ull
#define OFFSETS         0x2000ull /* GPAs */
#define AREA(cpu)       (0x100000ull + (cpu)*0x10000ull)
#define TASK(n)         (0x200000ull + (n)*0x2000ull)
#define MM(n)           (0x300000ull + (n)*0x1000ull)
#define TABLES(n)       (0x400000ull + (n)*0x2000ull)
#define TASK_STACK(n)   (0x500000ull + (n)*0x4000ull)
#define IRQ_STACK       0x580000ull
#define CSS_SET(n)      (0x600000ull + (n)*0x1000ull)
#define CGROUP(n)       (0x610000ull + (n)*0x1000ull)
#define NODE(n)                                                                                    \
	(0x620000ull + (n)*0x200ull) /* of a cgroup; its name is in the second                     \
				      * half */
#define CURRENT     0x20ull          /* per-CPU addresses */
#define IRQ_POINTER 0x28ull
#define SCHEDULED   0x30ull
#define APIC_ID     0x38ull
#define GDT_PAGE    0x1000ull
#define CPU_SEGMENT (GDT_PAGE + 15 * 8)

struct task_guest {
	struct flat_guest guest;
	struct guest_paging kernel;        /* maps it; a vCPU's CR3 may not */
	struct guest_registers *registers; /* CPU 0 in user code of task 1 */
	struct guest_task task;            /* of the latest lookup */
};

extern const struct guest_task_layout task_guest_layout;

void task_guest_make(struct task_guest *guest);
void task_guest_free(struct task_guest *guest);

void task_guest_put(struct task_guest *guest, uint64_t gpa, uint64_t value);
void task_guest_put_task(struct task_guest *guest, unsigned int n, uint32_t pid, uint32_t tid,
			 const char *comm);

/*
 * Task N is a thread of task LEADER's process, which began at STARTED and is a child of task
 * PARENT.
 */
void task_guest_put_process(struct task_guest *guest, unsigned int n, unsigned int leader,
			    uint64_t started, unsigned int parent);

/* Cgroup N is NAME (less than 256 bytes) below cgroup PARENT; PARENT N: it is the root. */
void task_guest_put_cgroup(struct task_guest *guest, unsigned int n, unsigned int parent,
			   uint64_t id, const char *name);
void task_guest_enter_cgroup(struct task_guest *guest, unsigned int task, unsigned int cgroup);

/* Calls guest_task_current(), and looks up its cgroup, with the current registers. */
bool task_guest_lookup(struct task_guest *guest);

#endif
