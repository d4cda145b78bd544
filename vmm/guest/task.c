/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/task.h"

#include <string.h>

#include "vmm/guest/kernel_memory.h"

#define CR3_ADDRESS    0x000ffffffffff000ull
#define CR3_PTI_USER   (1ull << 12) /* arch/x86/mm/pti.c: the user half of a pair of top tables */
#define GDT_CPU_NUMBER 15ull        /* GDT_ENTRY_CPUNODE */
#define CPU_NUMBER     0xfffu       /* VDSO_CPUNODE_MASK; the node is above it */
/* Where each CPU's entry and exception stacks are (arch/x86/include/asm/pgtable_areas.h,
 * CPU_ENTRY_AREA_BASE). */
#define ENTRY_AREA      0xfffffe0000000000ull
#define ENTRY_AREA_SIZE (1ull << 39)

/*
 * How Linux makes that segment (arch/x86/kernel/cpu/common.c, setup_getcpu):
 * present, DPL 3, data, expand-down, read-only. The bit for accessed is left
 * out. SDM vol. 3A 3.4.5.
 */
#define DESCRIPTOR_KIND     (0xfeull << 40)
#define DESCRIPTOR_CPU_DATA (0xf4ull << 40)

/* The number of the CPU whose GDT lies at GDT. */
static bool read_cpu_number(struct kernel_memory *memory, uint64_t gdt, uint64_t *cpu)
{
	uint64_t descriptor;

	if (!kernel_memory_read(memory, gdt + GDT_CPU_NUMBER * 8, &descriptor, sizeof(descriptor)) ||
	    (descriptor & DESCRIPTOR_KIND) != DESCRIPTOR_CPU_DATA)
		return false;
	*cpu = descriptor & CPU_NUMBER;
	return true;
}

/*
 * What makes per-CPU addresses those of the vCPU. The GDT lies in the CPU's
 * per-CPU memory, and is used at another address, where it is read-only: the
 * same memory, or it is another CPU's, or another kernel's.
 */
static bool find_cpu(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t gdt,
		     uint64_t *offset)
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

/*
 * Are the page tables in CR3 those of MM? PCIDs are in the low bits; with
 * KPTI the top tables are a pair at an even and the next odd page.
 */
static bool runs_in(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t mm,
		    uint64_t cr3)
{
	uint64_t table, gpa;

	cr3 &= CR3_ADDRESS;
	return kernel_memory_read(memory, mm + layout->page_table, &table, sizeof(table)) &&
	       kernel_memory_translate(memory, table, &gpa) &&
	       (cr3 == gpa || (!(gpa & CR3_PTI_USER) && cr3 == (gpa | CR3_PTI_USER)));
}

/* Is a stack of SIZE bytes from START in use at RSP? */
static bool is_within(uint64_t rsp, uint64_t start, uint64_t size)
{
	return rsp - start <= size;
}

static bool is_on_own_stack(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t at,
			    uint64_t rsp)
{
	uint64_t stack;

	return kernel_memory_read(memory, at + layout->stack, &stack, sizeof(stack)) &&
	       is_within(rsp, stack, layout->stack_size);
}

/*
 * Is the stack one that is used on top of a task's: of the entry from user
 * space and of exceptions, of interrupts, or still the user's?
 */
static bool is_on_top(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t offset,
		      uint64_t rsp)
{
	uint64_t top;

	if (rsp < KERNEL_HALF || is_within(rsp, ENTRY_AREA, ENTRY_AREA_SIZE))
		return true;
	return layout->irq_stack &&
	       kernel_memory_read(memory, offset + layout->irq_stack, &top, sizeof(top)) &&
	       is_within(rsp, top - layout->stack_size, layout->stack_size);
}

/* The task of the CPU whose stack is in use at RSP. */
static bool find_task(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t offset,
		      uint64_t rsp, uint64_t *at)
{
	if (!kernel_memory_read(memory, offset + layout->current, at, sizeof(*at)))
		return false;
	if (is_on_own_stack(memory, layout, *at, rsp) || is_on_top(memory, layout, offset, rsp))
		return true;
	return layout->scheduled && kernel_memory_read(memory, offset + layout->scheduled, at, sizeof(*at)) &&
	       is_on_own_stack(memory, layout, *at, rsp);
}

static bool read_ids(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t at,
		     struct guest_task *task)
{
	if (!kernel_memory_read(memory, at + layout->tgid, &task->pid, sizeof(task->pid)) ||
	    !kernel_memory_read(memory, at + layout->pid, &task->tid, sizeof(task->tid)) ||
	    !kernel_memory_read(memory, at + layout->comm, task->comm, sizeof(task->comm)))
		return false;
	task->comm[sizeof(task->comm) - 1] = '\0';
	return task->pid < SAMPLE_TASK_LIMIT && task->tid < SAMPLE_TASK_LIMIT && !task->pid == !task->tid;
}

static bool read_task(struct kernel_memory *memory, const struct guest_task_layout *layout, uint64_t offset,
		      const struct guest_registers *registers, struct guest_task *task)
{
	uint64_t at, mm;

	/* User code runs on its own stack, and its task can not be in the middle of anything. */
	if (!find_task(memory, layout, offset, registers->cpl ? 0 : registers->rsp, &at) ||
	    !read_ids(memory, layout, at, task) ||
	    !kernel_memory_read(memory, at + layout->mm, &mm, sizeof(mm)))
		return false;
	/* The kernel's own threads have no memory and run in whatever was there before. */
	task->foreign = mm && !runs_in(memory, layout, mm, registers->paging.cr3);
	task->mm = task->foreign ? 0 : mm;
	return !registers->cpl || (mm && !task->foreign);
}

bool guest_task_current(const struct guest_task_layout *layout, const struct guest_view *view,
			const struct guest_paging *kernel_paging, const struct guest_registers *registers,
			struct guest_task *task)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };
	uint64_t offset;

	if (layout->known && find_cpu(&memory, layout, registers->gdt_base, &offset) &&
	    read_task(&memory, layout, offset, registers, task))
		return true;
	*task = (struct guest_task){ .pid = SAMPLE_TASK_UNKNOWN, .tid = SAMPLE_TASK_UNKNOWN };
	return false;
}

bool guest_task_cpu_offset(const struct guest_task_layout *layout, const struct guest_view *view,
			   const struct guest_paging *kernel_paging, const struct guest_registers *registers,
			   uint64_t *offset)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };

	return layout->known && find_cpu(&memory, layout, registers->gdt_base, offset);
}

bool guest_task_executes(const struct guest_task_layout *layout, const uint64_t *addresses, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (addresses[i] - layout->execve_start < layout->execve_end - layout->execve_start)
			return true;
	return false;
}
