/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of the guest's kernel by name, and the per-CPU copies of per-CPU variables: their
 * per-CPU address plus the CPU's __per_cpu_offset[] (arch/x86/kernel/setup_percpu.c). Until 6.14 a
 * per-CPU address is an offset from 0 up, later an address in the kernel's image; it is between
 * __per_cpu_start and __per_cpu_end in both. Those of a module are in the range in its struct
 * module (percpu, percpu_size) and use the same offsets.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PER_CPU_H
#define KVMSCOPE_GUEST_LINUX_PER_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

struct guest_variable {
	uint64_t address; /* GVA, or per-CPU address */
	bool per_cpu;
	const char *module; /* owned by the kernel's symbols; NULL: the kernel itself */
};

/* Finds variable or function NAME in the kernel, else in a loaded module. False: not found. */
bool guest_variable_find(const struct guest_kernel *kernel, const char *name,
			 struct guest_variable *variable);

/* The shared offset of CPUs without memory of their own (yet): BOOT_PERCPU_OFFSET. */
uint64_t guest_per_cpu_boot_offset(const struct guest_kernel *kernel);

/*
 * The offset that turns per-CPU addresses into those of the vCPU with REGISTERS: by its GDT, which
 * is in its CPU's own memory. If that is not possible (REGISTERS may be NULL), by CPU, the number
 * of the guest's CPU. False: that CPU has no memory of its own, or none yet: Linux allocates it
 * when the CPU starts.
 */
bool guest_per_cpu_offset(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_registers *registers, unsigned int cpu,
			  uint64_t *offset);

#endif
