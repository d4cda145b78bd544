/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/task.h"

#include <errno.h>
#include <string.h>

#include "vmm/guest/linux/kernel_memory.h"

#define GDT_CPU_NUMBER 15ull   /* GDT_ENTRY_CPUNODE */
#define APIC_ID_NONE   0xffffu /* BAD_APICID: no such CPU */
#define CPU_NUMBER     0xfffu  /* VDSO_CPUNODE_MASK; the node is above it */
/* Entry and exception stacks of all CPUs (arch/x86/include/asm/pgtable_areas.h,
 * CPU_ENTRY_AREA_BASE). */
#define ENTRY_AREA      0xfffffe0000000000ull
#define ENTRY_AREA_SIZE (1ull << 39)

/*
 * The segment as Linux sets it up (arch/x86/kernel/cpu/common.c, setup_getcpu): present, DPL 3,
 * data, expand-down, read-only; the accessed bit is ignored. SDM vol. 3A 3.4.5.
 */
#define DESCRIPTOR_KIND     (0xfeull << 40)
#define DESCRIPTOR_CPU_DATA (0xf4ull << 40)

/* The number of the CPU whose GDT is at GDT. */
static bool read_cpu_number(struct kernel_memory *memory, uint64_t gdt, uint64_t *cpu)
{
	uint64_t descriptor;

	if (!kernel_memory_read(memory, gdt + GDT_CPU_NUMBER * 8, &descriptor,
				sizeof(descriptor)) ||
	    (descriptor & DESCRIPTOR_KIND) != DESCRIPTOR_CPU_DATA)
		return false;
	*cpu = descriptor & CPU_NUMBER;
	return true;
}

/*
 * The per-CPU offset of the vCPU. The GDT is in the CPU's per-CPU memory, and used through a
 * read-only alias. If both are not the same memory, the GDT is another CPU's or another kernel's.
 */
static bool find_cpu(struct kernel_memory *memory, const struct guest_task_layout *layout,
		     uint64_t gdt, uint64_t *offset)
{
	uint64_t cpu, used, own;

	*offset = 0;
	if (!read_cpu_number(memory, gdt, &cpu) || !kernel_memory_translate(memory, gdt, &used))
		return false;
	if (layout->offsets &&
	    !kernel_memory_read(memory, layout->offsets + cpu * 8, offset, sizeof(*offset)))
		return false;
	return kernel_memory_translate(memory, *offset + layout->gdt_page, &own) && own == used;
}

static bool read_task(struct kernel_memory *memory, const struct guest_task_layout *layout,
		      uint64_t at, struct guest_task_snapshot *snapshot)
{
	*snapshot = (struct guest_task_snapshot){ .at = at };
	return kernel_memory_read_u64(memory, at + layout->stack, &snapshot->stack) &&
	       kernel_memory_read(memory, at + layout->tgid, &snapshot->tgid,
				  sizeof(snapshot->tgid)) &&
	       kernel_memory_read(memory, at + layout->pid, &snapshot->pid,
				  sizeof(snapshot->pid)) &&
	       kernel_memory_read(memory, at + layout->comm, snapshot->comm,
				  sizeof(snapshot->comm)) &&
	       kernel_memory_read_u64(memory, at + layout->mm, &snapshot->mm);
}

/* A task with unreadable page tables counts as foreign. */
static bool read_snapshot(struct kernel_memory *memory, const struct guest_task_layout *layout,
			  uint64_t at, struct guest_task_snapshot *snapshot)
{
	if (!read_task(memory, layout, at, snapshot))
		return false;
	if (snapshot->mm && !kernel_memory_read_u64(memory, snapshot->mm + layout->page_table,
						    &snapshot->page_table))
		snapshot->page_table = 0;
	return true;
}

/* Are the page tables in CR3 those of the task, in either half of KPTI's pair? */
static bool runs_in(struct kernel_memory *memory, const struct guest_task_snapshot *snapshot,
		    uint64_t cr3)
{
	uint64_t gpa;

	cr3 &= CR3_ADDRESS;
	return snapshot->page_table &&
	       kernel_memory_translate(memory, snapshot->page_table, &gpa) &&
	       (cr3 == gpa || (!(gpa & CR3_PTI_USER) && cr3 == (gpa | CR3_PTI_USER)));
}

/* Is a stack of SIZE bytes from START in use at RSP? */
static bool is_within(uint64_t rsp, uint64_t start, uint64_t size)
{
	return rsp - start <= size;
}

static bool is_on_own_stack(const struct guest_task_layout *layout,
			    const struct guest_task_snapshot *snapshot, uint64_t rsp)
{
	return snapshot->at && is_within(rsp, snapshot->stack, layout->stack_size);
}

/*
 * Is the stack one that is used in addition to a task's: for entry and exceptions, for interrupts,
 * or still the user's?
 */
static bool is_on_top(struct kernel_memory *memory, const struct guest_task_layout *layout,
		      uint64_t offset, uint64_t rsp)
{
	uint64_t top;

	if (rsp < KERNEL_HALF || is_within(rsp, ENTRY_AREA, ENTRY_AREA_SIZE))
		return true;
	return layout->irq_stack &&
	       kernel_memory_read_u64(memory, offset + layout->irq_stack, &top) &&
	       is_within(rsp, top - layout->stack_size, layout->stack_size);
}

/* User code uses its own stack, and its task cannot be in a context switch. */
static uint64_t stack_in_use(const struct guest_registers *registers)
{
	return registers->cpl ? 0 : registers->rsp;
}

/* The task of the CPU whose stack is in use; NULL: neither. */
static const struct guest_task_snapshot *choose(struct kernel_memory *memory,
						const struct guest_task_layout *layout,
						uint64_t offset, uint64_t rsp,
						const struct guest_tasks_snapshot *snapshot)
{
	if (is_on_own_stack(layout, &snapshot->current, rsp) ||
	    is_on_top(memory, layout, offset, rsp))
		return &snapshot->current;
	return is_on_own_stack(layout, &snapshot->scheduled, rsp) ? &snapshot->scheduled : NULL;
}

static bool read_tasks(struct kernel_memory *memory, const struct guest_task_layout *layout,
		       uint64_t offset, uint64_t rsp, struct guest_tasks_snapshot *snapshot)
{
	uint64_t at;

	snapshot->scheduled.at = 0;
	if (!kernel_memory_read_u64(memory, offset + layout->current, &at) ||
	    !read_snapshot(memory, layout, at, &snapshot->current))
		return false;
	return choose(memory, layout, offset, rsp, snapshot) || !layout->scheduled ||
	       (kernel_memory_read_u64(memory, offset + layout->scheduled, &at) &&
		read_snapshot(memory, layout, at, &snapshot->scheduled));
}

static bool set_names(const struct guest_task_snapshot *snapshot, struct guest_task *task)
{
	task->pid = snapshot->tgid;
	task->tid = snapshot->pid;
	memcpy(task->comm, snapshot->comm, sizeof(task->comm));
	task->comm[sizeof(task->comm) - 1] = '\0';
	return task->pid < SAMPLE_TASK_LIMIT && task->tid < SAMPLE_TASK_LIMIT &&
	       !task->pid == !task->tid;
}

static void set_process(const struct guest_process_state *process, struct guest_task *task)
{
	if (!task->pid || !process->started || process->parent >= SAMPLE_TASK_LIMIT)
		return;
	task->started = process->started;
	task->parent = process->parent;
	memcpy(task->process_comm, process->comm, sizeof(task->process_comm));
	task->process_comm[sizeof(task->process_comm) - 1] = '\0';
}

static bool identify(struct kernel_memory *memory, const struct guest_task_layout *layout,
		     uint64_t offset, const struct guest_registers *registers,
		     const struct guest_tasks_snapshot *snapshot, struct guest_task *task)
{
	const struct guest_task_snapshot *chosen =
		choose(memory, layout, offset, stack_in_use(registers), snapshot);

	*task = (struct guest_task){ 0 };
	if (!chosen || !set_names(chosen, task))
		return false;
	task->at = chosen->at;
	task->set = chosen->set;
	/* Kernel threads have no memory, and run in the page tables of the previous task. */
	task->foreign = chosen->mm && !runs_in(memory, chosen, registers->paging.cr3);
	task->mm = task->foreign ? 0 : chosen->mm;
	task->page_table = task->mm ? chosen->page_table : 0;
	if (task->mm)
		task->space = chosen->space;
	set_process(&chosen->process, task);
	return !registers->cpl || (chosen->mm && !task->foreign);
}

static bool set_unknown(struct guest_task *task)
{
	*task = (struct guest_task){ .pid = SAMPLE_TASK_UNKNOWN, .tid = SAMPLE_TASK_UNKNOWN };
	return false;
}

/* The leader's parent is that of the process. It is read twice: an exiting parent is replaced. */
static void read_process(struct kernel_memory *memory, const struct guest_task_layout *layout,
			 struct guest_task *task)
{
	uint64_t leader, parent, again;

	if (!layout->parent || !task->pid ||
	    !kernel_memory_read_u64(memory, task->at + layout->leader, &leader) ||
	    !kernel_memory_read_u64(memory, leader + layout->started, &task->started) ||
	    !kernel_memory_read_u64(memory, leader + layout->parent, &parent) ||
	    !kernel_memory_read(memory, parent + layout->tgid, &task->parent,
				sizeof(task->parent)) ||
	    !kernel_memory_read_u64(memory, leader + layout->parent, &again) || parent != again ||
	    task->parent >= SAMPLE_TASK_LIMIT ||
	    !kernel_memory_read(memory, leader + layout->comm, task->process_comm,
				sizeof(task->process_comm)))
		task->started = task->parent = 0;
	task->process_comm[sizeof(task->process_comm) - 1] = '\0';
}

bool guest_task_current(const struct guest_task_layout *layout, const struct guest_view *view,
			const struct guest_paging *kernel_paging,
			const struct guest_registers *registers, struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };
	struct guest_tasks_snapshot snapshot;
	uint64_t offset;

	if (!layout->known || !find_cpu(&memory, layout, registers->gdt_base, &offset) ||
	    !read_tasks(&memory, layout, offset, stack_in_use(registers), &snapshot) ||
	    !identify(&memory, layout, offset, registers, &snapshot, task))
		return set_unknown(task);
	read_process(&memory, layout, task);
	return true;
}

void guest_task_find_cgroup(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	guest_cgroup_read(&memory, &layout->cgroups, task->at, &task->cgroup);
}

/* Recorded to detect later that the task was moved to another cgroup. */
static void read_set(struct kernel_memory *memory, const struct guest_cgroup_layout *layout,
		     struct guest_task_snapshot *snapshot)
{
	if (!guest_cgroup_read_set(memory, layout, snapshot->at, &snapshot->set))
		snapshot->set = 0;
}

bool guest_tasks_read(const struct guest_task_layout *layout, const struct guest_view *view,
		      const struct guest_paging *kernel_paging,
		      const struct guest_registers *registers, uint64_t offset,
		      struct guest_tasks_snapshot *snapshot)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	if (!layout->known ||
	    !read_tasks(&memory, layout, offset, stack_in_use(registers), snapshot))
		return false;
	read_set(&memory, &layout->cgroups, &snapshot->current);
	read_set(&memory, &layout->cgroups, &snapshot->scheduled);
	return true;
}

bool guest_task_identify(const struct guest_task_layout *layout, const struct guest_view *view,
			 const struct guest_paging *kernel_paging,
			 const struct guest_registers *registers, uint64_t offset,
			 const struct guest_tasks_snapshot *snapshot, struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	return (layout->known && identify(&memory, layout, offset, registers, snapshot, task)) ||
	       set_unknown(task);
}

bool guest_task_cpu_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			   const struct guest_paging *kernel_paging,
			   const struct guest_registers *registers, uint64_t *offset)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	return layout->known && find_cpu(&memory, layout, registers->gdt_base, offset);
}

/* 16 bits wide, in newer kernels 32: the lower half is the same. */
static bool has_apic_id(struct kernel_memory *memory, const struct guest_task_layout *layout,
			uint64_t offset, uint32_t apic_id)
{
	uint16_t found;

	return kernel_memory_read(memory, offset + layout->apic_id, &found, sizeof(found)) &&
	       found == apic_id;
}

bool guest_task_apic_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			    const struct guest_paging *kernel_paging, uint32_t apic_id,
			    uint64_t *offset)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	*offset = 0;
	if (!layout->known || apic_id >= APIC_ID_NONE)
		return false;
	if (!layout->offsets)
		return !apic_id;
	for (uint32_t cpu = 0; layout->apic_id && cpu < layout->cpus; cpu++)
		if (kernel_memory_read_u64(&memory, layout->offsets + cpu * 8ull, offset) &&
		    has_apic_id(&memory, layout, *offset, apic_id))
			return true;
	return false;
}

bool guest_task_in_execve(const struct guest_task_layout *layout, const uint64_t *addresses,
			  size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (addresses[i] - layout->execve_start < layout->execve_end - layout->execve_start)
			return true;
	return false;
}

#define LINKS_MAX   (1u << 16) /* the list includes kernel threads */
#define USER_HALF   256        /* entries of a top table; SDM vol. 3A 4.5 */
#define PRESENT     1ull
#define PTE_ADDRESS 0x000ffffffffff000ull

struct links {
	uint64_t next, previous;
};

/* Root 0: a process without memory of its own. */
static bool read_listed(struct kernel_memory *memory, const struct guest_task_layout *layout,
			uint64_t task, struct guest_process *process)
{
	uint64_t mm, table;

	process->root = 0;
	if (!kernel_memory_read(memory, task + layout->tgid, &process->pid, sizeof(process->pid)) ||
	    !kernel_memory_read_u64(memory, task + layout->mm, &mm))
		return false;
	return !mm || (process->pid < SAMPLE_TASK_LIMIT &&
		       kernel_memory_read_u64(memory, mm + layout->page_table, &table) &&
		       kernel_memory_translate(memory, table, &process->root));
}

int guest_task_list(const struct guest_task_layout *layout, const struct guest_view *view,
		    const struct guest_paging *kernel_paging, struct guest_process *list,
		    size_t max)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };
	uint64_t first = layout->first + layout->list, at = first, before;
	struct links links;
	size_t count = 0;

	if (!layout->known || !layout->first)
		return -ENOENT;
	if (!kernel_memory_read(&memory, at, &links, sizeof(links)))
		return -EAGAIN;
	for (unsigned int i = 0; links.next != first; i++) {
		struct guest_process process;

		before = at;
		at = links.next;
		if (i == LINKS_MAX || !kernel_memory_read(&memory, at, &links, sizeof(links)) ||
		    links.previous != before ||
		    !read_listed(&memory, layout, at - layout->list, &process))
			return -EAGAIN;
		if (process.root && count == max)
			return -EAGAIN;
		if (process.root)
			list[count++] = process;
	}
	return (int)count;
}

bool guest_task_has_pti_pair(const struct guest_view *view, uint64_t root)
{
	uint64_t own[USER_HALF], other[USER_HALF];
	bool mapped = false;

	if (root & CR3_PTI_USER || guest_read_physical(view, root, own, sizeof(own)) ||
	    guest_read_physical(view, root | CR3_PTI_USER, other, sizeof(other)))
		return false;
	for (int i = 0; i < USER_HALF; i++) {
		bool present = own[i] & PRESENT;

		if (present != (other[i] & PRESENT) ||
		    (present && (own[i] ^ other[i]) & PTE_ADDRESS))
			return false;
		mapped |= present;
	}
	return mapped;
}
