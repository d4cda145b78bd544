/* SPDX-License-Identifier: Apache-2.0 */
/* ACPI tables for unmodified kernels: RSDP, XSDT, FADT, MADT, and a DSDT with the serial port
 * and each virtio-mmio device (LNRO0005). ACPI 6.4. */
#ifndef KVMSCOPE_BOOT_ACPI_H
#define KVMSCOPE_BOOT_ACPI_H

#include "vmm/boot/acpi_tables.h"
#include "vmm/kvm/guest_ram.h"

/* Writes the tables into [ACPI_START, ACPI_END); *RSDP is the GPA of the RSDP. -ENOSPC or
 * -EFAULT. */
int acpi_build(const struct acpi_options *options, const struct memory *memory, uint64_t *rsdp);

#endif
