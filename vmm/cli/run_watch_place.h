/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the guest a watch is: at one address, or that of a per-CPU variable on each vCPU. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_PLACE_H
#define KVMSCOPE_CLI_RUN_WATCH_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/debug/watch_spec.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/kvm/vm.h"
#include "vmm/sample/sampler.h"

struct run_watch_guest {
	const struct guest_kernel *kernel; /* NULL while it was not found */
	const struct guest_view *view;
	const struct sampler
		*sampler; /* for the registers of the vCPUs, which tell the CPU that each is */
	unsigned int vcpus;
};

struct run_watch_place {
	uint64_t address; /* of per_cpu: of the first vCPU that has one */
	bool per_cpu;
	char module[sizeof(
		((struct guest_module *)NULL)->name)]; /* that it is of and goes with; else "" */
	bool complete;            /* else ON is still 0 for a vCPU of a per-CPU variable */
	uint64_t on[VM_CPUS_MAX]; /* of per_cpu: GVA on each vCPU that is watched */
};

/*
 * 1, and PLACE; 0 while it is not known: the kernel was not found, or its CPUs have no memory of
 * their own yet. -ENOENT: neither it nor a module of it has such a symbol; -EINVAL: no register can
 * watch it.
 */
int run_watch_place_find(const struct run_watch_guest *guest, const struct watch_spec *spec,
			 struct run_watch_place *place);

#endif
