/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the guest a watch is. One thread at a time. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_ADDRESS_H
#define KVMSCOPE_CLI_RUN_WATCH_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/debug/watch_spec.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/kvm/vm.h"
#include "vmm/sample/sampler.h"

struct run_watch_guest {
	const struct guest_kernel *kernel; /* NULL until it is found */
	const struct symbols *image;       /* of a kernel that is not Linux; else NULL */
	const struct guest_view *view;
	const struct sampler *sampler; /* for the vCPUs' registers, which identify their CPUs */
	unsigned int vcpus;
};

struct run_watch_address {
	uint64_t address; /* with per_cpu: on the first vCPU that has one */
	bool per_cpu;     /* one address on each vCPU */
	bool complete;    /* false: ON is still 0 for a vCPU */
	bool of_image;    /* the symbol is the image's */
	char module[sizeof(
		((struct guest_module *)NULL)->name)]; /* of the symbol; "": the kernel */
	uint64_t on[VM_CPUS_MAX];                      /* with per_cpu: GVA on each watched vCPU */
};

/*
 * Finds the address of SPEC. Returns 1; 0 if it is unknown: the image has no such symbol and the
 * kernel was not found, or its CPUs have no per-CPU memory yet. -ENOENT: neither the kernel nor a
 * module has the symbol; -EINVAL: no debug register can watch it.
 */
int run_watch_locate(const struct run_watch_guest *guest, const struct watch_spec *spec,
		     struct run_watch_address *found);

#endif
