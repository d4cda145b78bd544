// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch_place.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/guest/linux/per_cpu.h"

static bool offset_on(const struct run_watch_guest *guest, unsigned int vcpu, uint64_t *offset)
{
	struct guest_registers registers;
	uint64_t time;
	bool known = guest->sampler && sampler_registers(guest->sampler, vcpu, &registers, &time);

	return guest_per_cpu_offset(guest->kernel, guest->view, known ? &registers : NULL, vcpu,
				    offset);
}

static int find_on_each(const struct run_watch_guest *guest, const struct watch_spec *spec,
			uint64_t address, struct run_watch_place *place)
{
	uint64_t offset;

	place->per_cpu = place->complete = true;
	for (unsigned int i = 0; i < guest->vcpus; i++) {
		if (spec->vcpu >= 0 && spec->vcpu != (int)i)
			continue;
		if (!offset_on(guest, i, &offset)) {
			place->complete = false;
			continue;
		}
		place->on[i] = address + offset;
		place->address = place->address ? place->address : place->on[i];
	}
	return place->address ? 1 : 0;
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
		"%#llx can not be watched: a debug register watches %u bytes at a multiple of %u",
		(unsigned long long)address, spec->length, spec->length);
}

int run_watch_place_find(const struct run_watch_guest *guest, const struct watch_spec *spec,
			 struct run_watch_place *place)
{
	struct guest_variable variable = { .address = 0 };
	int found = 1;

	*place = (struct run_watch_place){ .complete = true };
	if (*spec->symbol && !guest->kernel)
		return 0;
	if (*spec->symbol && !guest_variable_find(guest->kernel, spec->symbol, &variable))
		return error_set(-ENOENT, "the guest's kernel and its modules have no symbol %s",
				 spec->symbol);
	if (variable.module)
		snprintf(place->module, sizeof(place->module), "%s", variable.module);
	if (variable.per_cpu)
		found = find_on_each(guest, spec, variable.address + spec->offset, place);
	else
		place->address = variable.address + spec->offset;
	if (found)
		found = check_alignment(spec, place->address);
	for (unsigned int i = 0; i < guest->vcpus && found > 0; i++)
		found = check_alignment(spec, place->on[i]);
	return found;
}
