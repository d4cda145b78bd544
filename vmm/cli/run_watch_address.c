/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_watch_address.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/guest/linux/per_cpu.h"
#include "vmm/guest/symbol_table.h"

static bool offset_on(const struct run_watch_guest *guest, unsigned int vcpu, uint64_t *offset)
{
	struct guest_registers registers;
	uint64_t time;
	bool known = guest->sampler && sampler_registers(guest->sampler, vcpu, &registers, &time);

	return guest_per_cpu_offset(guest->kernel, guest->view, known ? &registers : NULL, vcpu,
				    offset);
}

static int locate_on_each(const struct run_watch_guest *guest, const struct watch_spec *spec,
			  uint64_t address, struct run_watch_address *found)
{
	uint64_t offset;

	found->per_cpu = found->complete = true;
	for (unsigned int i = 0; i < guest->vcpus; i++) {
		if (spec->vcpu >= 0 && spec->vcpu != (int)i)
			continue;
		if (!offset_on(guest, i, &offset)) {
			found->complete = false;
			continue;
		}
		found->on[i] = address + offset;
		found->address = found->address ? found->address : found->on[i];
	}
	return found->address ? 1 : 0;
}

static int check_alignment(const struct watch_spec *spec, uint64_t address)
{
	struct breakpoint breakpoint = { .address = address,
					 .kind = spec->kind,
					 .length = spec->length };

	if (breakpoint_valid(&breakpoint))
		return 1;
	return error_set(
		-EINVAL,
		"%#llx cannot be watched: a debug register watches %u bytes at a multiple of %u",
		(unsigned long long)address, spec->length, spec->length);
}

/* Returns as run_watch_locate(). */
static int find_variable(const struct run_watch_guest *guest, const struct watch_spec *spec,
			 struct guest_variable *variable, bool *of_image)
{
	struct symbol symbol;

	if (!*spec->symbol)
		return 1;
	*of_image = guest->image && symbols_find_name(guest->image, spec->symbol, &symbol);
	if (*of_image) {
		variable->address = symbol.start;
		return 1;
	}
	if (!guest->kernel)
		return 0;
	return guest_variable_find(guest->kernel, spec->symbol, variable)
		       ? 1
		       : error_set(-ENOENT, "the guest's kernel and its modules have no symbol %s",
				   spec->symbol);
}

int run_watch_locate(const struct run_watch_guest *guest, const struct watch_spec *spec,
		     struct run_watch_address *found)
{
	struct guest_variable variable = { .address = 0 };
	int result;

	*found = (struct run_watch_address){ .complete = true };
	result = find_variable(guest, spec, &variable, &found->of_image);
	if (result <= 0)
		return result;
	if (variable.module)
		snprintf(found->module, sizeof(found->module), "%s", variable.module);
	if (variable.per_cpu)
		result = locate_on_each(guest, spec, variable.address + spec->offset, found);
	else
		found->address = variable.address + spec->offset;
	if (result)
		result = check_alignment(spec, found->address);
	for (unsigned int i = 0; i < guest->vcpus && result > 0; i++)
		result = check_alignment(spec, found->on[i]);
	return result;
}
