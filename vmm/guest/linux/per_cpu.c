/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/per_cpu.h"

#include "vmm/guest/linux/task.h"
#include "vmm/guest/page_walk.h"

static bool find_symbol(const struct guest_kernel *kernel, const char *name, uint64_t *address)
{
	return guest_find_per_cpu(kernel->symbols, kernel->per_cpu, name, address);
}

static bool is_per_cpu(const struct guest_kernel *kernel, uint64_t address)
{
	uint64_t start, end;

	return find_symbol(kernel, "__per_cpu_start", &start) &&
	       find_symbol(kernel, "__per_cpu_end", &end) && address >= start && address < end;
}

static bool find_in_kernel(const struct guest_kernel *kernel, const char *name,
			   struct guest_variable *variable)
{
	struct symbol symbol;

	if (symbols_find_name(kernel->symbols, name, &symbol)) {
		*variable = (struct guest_variable){ .address = symbol.start,
						     .per_cpu = is_per_cpu(kernel, symbol.start) };
		return true;
	}
	/* Neither in the image nor per-CPU: an absolute symbol. */
	if (!symbols_find_name(kernel->per_cpu, name, &symbol) || !is_per_cpu(kernel, symbol.start))
		return false;
	*variable = (struct guest_variable){ .address = symbol.start, .per_cpu = true };
	return true;
}

static bool find_in_module(const struct guest_kernel *kernel, const char *name,
			   struct guest_variable *variable)
{
	struct symbol symbol;
	bool per_cpu = symbols_find_name_in_modules(kernel->per_cpu, name, &symbol);

	if (!per_cpu && !symbols_find_name_in_modules(kernel->symbols, name, &symbol))
		return false;
	*variable = (struct guest_variable){ .address = symbol.start,
					     .per_cpu = per_cpu,
					     .module = symbol.module };
	return true;
}

bool guest_variable_find(const struct guest_kernel *kernel, const char *name,
			 struct guest_variable *variable)
{
	return find_in_kernel(kernel, name, variable) || find_in_module(kernel, name, variable);
}

uint64_t guest_per_cpu_boot_offset(const struct guest_kernel *kernel)
{
	uint64_t start, load;

	return find_symbol(kernel, "__per_cpu_start", &start) &&
			       find_symbol(kernel, "__per_cpu_load", &load)
		       ? load - start
		       : 0;
}

bool guest_per_cpu_offset(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_registers *registers, unsigned int cpu,
			  uint64_t *offset)
{
	uint64_t offsets;

	if (!registers ||
	    !guest_task_cpu_offset(&kernel->tasks, view, &kernel->paging, registers, offset)) {
		if (!find_symbol(kernel, "__per_cpu_offset", &offsets) ||
		    guest_read_virtual(view, &kernel->paging, offsets + cpu * sizeof(*offset),
				       offset, sizeof(*offset)))
			return false;
	}
	return *offset != guest_per_cpu_boot_offset(kernel);
}
