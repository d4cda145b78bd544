/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/task_layout.h"

#include <errno.h>
#include <string.h>

#include "shared/sample_record.h"
#include "vmm/guest/linux/btf_types.h"

#define STACK_MIN 4096u
#define STACK_MAX (1u << 20)
#define CPUS_MAX  8192u /* arch/x86/Kconfig, NR_CPUS_RANGE_END */

bool guest_find_per_cpu(const struct symbols *symbols, const struct symbols *per_cpu,
			const char *name, uint64_t *address)
{
	struct symbol symbol;

	if (!symbols_find_name(per_cpu, name, &symbol) &&
	    !symbols_find_name(symbols, name, &symbol))
		return false;
	*address = symbol.start;
	return true;
}

/* A per-CPU variable of its own, or a member of pcpu_hot (6.2 to 6.14). */
static bool find_hot(const struct symbols *symbols, const struct symbols *per_cpu,
		     const struct btf *btf, const char *name, uint64_t *address)
{
	uint32_t offset;

	if (guest_find_per_cpu(symbols, per_cpu, name, address))
		return true;
	if (!guest_find_per_cpu(symbols, per_cpu, "pcpu_hot", address) ||
	    !btf_find_offset(btf, "pcpu_hot", name, 8, &offset))
		return false;
	*address += offset;
	return true;
}

/*
 * THREAD_SIZE, by the first task's stack in the linker script (include/asm-generic/vmlinux.lds.h,
 * INIT_TASK_DATA). Interrupt stacks have the same size (arch/x86/include/asm/page_64_types.h).
 */
static bool find_stack_size(const struct symbols *symbols, uint32_t *size)
{
	static const char *const names[][2] = { { "__start_init_stack", "__end_init_stack" },
						{ "__start_init_task", "__end_init_task" } };
	struct symbol start, end;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!symbols_find_name(symbols, names[i][0], &start) ||
		    !symbols_find_name(symbols, names[i][1], &end))
			continue;
		*size = (uint32_t)(end.start - start.start);
		return end.start - start.start >= STACK_MIN && end.start - start.start <= STACK_MAX;
	}
	return false;
}

/* A kernel without the table of offsets is built without SMP: per-CPU variables are plain ones. */
static void find_offsets(struct guest_task_layout *layout, const struct symbols *symbols)
{
	struct symbol symbol;

	layout->offsets =
		symbols_find_name(symbols, "__per_cpu_offset", &symbol) ? symbol.start : 0;
	if (layout->offsets && symbol.end - symbol.start <= CPUS_MAX * 8ul)
		layout->cpus = (uint32_t)(symbol.end - symbol.start) / 8;
}

static void find_scheduled(struct guest_task_layout *layout, const struct symbols *symbols,
			   const struct symbols *per_cpu, const struct btf *btf)
{
	uint32_t offset;

	if (guest_find_per_cpu(symbols, per_cpu, "runqueues", &layout->scheduled) &&
	    btf_find_offset(btf, "rq", "curr", 8, &offset))
		layout->scheduled += offset;
	else
		layout->scheduled = 0;
}

/* Optional: identity of the process, and its cgroup. */
static void find_process(struct guest_task_layout *layout, const struct btf *btf)
{
	if (!btf_find_offset(btf, "task_struct", "real_parent", 8, &layout->parent) ||
	    !btf_find_offset(btf, "task_struct", "group_leader", 8, &layout->leader) ||
	    !btf_find_offset(btf, "task_struct", "start_time", 8, &layout->started))
		layout->parent = 0;
	guest_cgroup_layout_read(&layout->cgroups, btf);
}

/*
 * fs/exec.c: everything from flush_old_exec() or begin_new_exec() to start_thread() is called
 * through this function (since 5.9), or through one that older kernels export to modules.
 */
static void find_execve(struct guest_task_layout *layout, const struct symbols *symbols)
{
	struct symbol symbol;

	if (!symbols_find_name(symbols, "bprm_execve", &symbol) &&
	    !symbols_find_name(symbols, "search_binary_handler", &symbol))
		return;
	layout->execve_start = symbol.start;
	layout->execve_end = symbol.end;
}

static void find_list(struct guest_task_layout *layout, const struct symbols *symbols,
		      const struct btf *btf)
{
	struct symbol symbol;

	if (symbols_find_name(symbols, "init_task", &symbol) &&
	    btf_find_offset(btf, "task_struct", "tasks", 16, &layout->list))
		layout->first = symbol.start;
}

bool guest_task_first_stack(const struct symbols *symbols, uint64_t *stack)
{
	static const char *const names[] = { "__start_init_stack", "__start_init_task",
					     "init_stack" };
	struct symbol symbol;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (symbols_find_name(symbols, names[i], &symbol)) {
			*stack = symbol.start;
			return true;
		}
	return false;
}

bool guest_task_layout_by_symbols(struct guest_task_layout *layout, const struct symbols *symbols,
				  const struct symbols *per_cpu)
{
	if (!guest_find_per_cpu(symbols, per_cpu, "gdt_page", &layout->gdt_page) ||
	    !find_stack_size(symbols, &layout->stack_size))
		return false;
	if (!guest_find_per_cpu(symbols, per_cpu, "current_task", &layout->current))
		layout->current = 0;
	if (!guest_find_per_cpu(symbols, per_cpu, "hardirq_stack_ptr", &layout->irq_stack) &&
	    !guest_find_per_cpu(symbols, per_cpu, "irq_stack_ptr",
				&layout->irq_stack)) /* before 5.2 */
		layout->irq_stack = 0;
	if (!guest_find_per_cpu(symbols, per_cpu, "x86_cpu_to_apicid", &layout->apic_id))
		layout->apic_id = 0;
	find_offsets(layout, symbols);
	find_execve(layout, symbols);
	return true;
}

/* Members of pcpu_hot in kernels where they are not variables of their own. */
static bool find_hot_members(struct guest_task_layout *layout, const struct symbols *symbols,
			     const struct symbols *per_cpu, const struct btf *btf)
{
	if (!layout->irq_stack &&
	    !find_hot(symbols, per_cpu, btf, "hardirq_stack_ptr", &layout->irq_stack))
		layout->irq_stack = 0;
	return layout->current || find_hot(symbols, per_cpu, btf, "current_task", &layout->current);
}

int guest_task_layout_read(struct guest_task_layout *layout, const struct symbols *symbols,
			   const struct symbols *per_cpu, const struct btf *btf)
{
	memset(layout, 0, sizeof(*layout));
	if (!guest_task_layout_by_symbols(layout, symbols, per_cpu) ||
	    !find_hot_members(layout, symbols, per_cpu, btf) ||
	    !btf_find_offset(btf, "task_struct", "pid", 4, &layout->pid) ||
	    !btf_find_offset(btf, "task_struct", "tgid", 4, &layout->tgid) ||
	    !btf_find_offset(btf, "task_struct", "comm", SAMPLE_COMM_SIZE, &layout->comm) ||
	    !btf_find_offset(btf, "task_struct", "mm", 8, &layout->mm) ||
	    !btf_find_offset(btf, "task_struct", "stack", 8, &layout->stack) ||
	    !btf_find_offset(btf, "mm_struct", "pgd", 8, &layout->page_table))
		return -ENOENT;
	find_scheduled(layout, symbols, per_cpu, btf);
	find_list(layout, symbols, btf);
	find_process(layout, btf);
	layout->known = true;
	return 0;
}
