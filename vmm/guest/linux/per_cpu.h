/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of the guest's kernel by name, and where the copies of per-CPU
 * ones lie: at their per-CPU address plus __per_cpu_offset[] of the CPU
 * (arch/x86/kernel/setup_percpu.c). To 6.14 a per-CPU address is an offset
 * from 0 up, behind that one in the kernel's image; it lies between
 * __per_cpu_start and __per_cpu_end in both. A module's lie elsewhere, in what its struct
 * module says (percpu, percpu_size), and are added to the same offset.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PER_CPU_H
#define KVMSCOPE_GUEST_LINUX_PER_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

struct guest_variable {
	uint64_t address; /* GVA; or the per-CPU address */
	bool per_cpu;
	const char *module; /* that it is of, as long as the kernel's symbols are there; NULL: of
			       the kernel itself */
};

/* Or a function: the kernel's own, else that of a loaded module. False: none has that NAME. */
bool guest_variable_find(const struct guest_kernel *kernel, const char *name,
			 struct guest_variable *variable);

/* That of CPUs which have no memory of their own (yet): they share this one (BOOT_PERCPU_OFFSET).
 */
uint64_t guest_per_cpu_boot_offset(const struct guest_kernel *kernel);

/*
 * What makes a per-CPU address that of the vCPU with REGISTERS: told by the
 * GDT that it uses, which lies in its CPU's own memory. Where that can not be told (REGISTERS
 * may be NULL), by CPU, the number of the guest's CPU. False: that CPU
 * has no memory of its own, or none yet: Linux gives it out as it starts.
 */
bool guest_per_cpu_offset(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_registers *registers, unsigned int cpu,
			  uint64_t *offset);

#endif
