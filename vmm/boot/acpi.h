/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI tables for unmodified kernels: RSDP, XSDT, FADT, MADT, DSDT with the
 * serial port and each virtio-mmio device (LNRO0005). ACPI 6.4.
 */
#ifndef KVMSCOPE_BOOT_ACPI_H
#define KVMSCOPE_BOOT_ACPI_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/guest_ram.h"

/* Where tables may lie: below 1 MiB, behind the EBDA, marked ACPI in the e820 map. */
#define ACPI_START 0xe0000ull
#define ACPI_END   0x100000ull

struct acpi_virtio_device {
	uint64_t gpa; /* of its MMIO range */
	uint32_t size;
	uint32_t gsi;
};

struct acpi_options {
	unsigned int cpus;
	const struct acpi_virtio_device *virtio;
	size_t virtio_count;
};

/* What the machine's fixed hardware is, as the FADT describes it; implemented by
 * vmm/devices/acpi_pm. */
#define ACPI_PM_PORT                                                                               \
	0x600 /* PM1a event block (4 bytes), control block (2), PM timer (4) at +0, +4, +8 */
#define ACPI_SCI_GSI    9
#define ACPI_RESET_PORT 0xcf9 /* reset register: value 6 resets */
#define ACPI_SLP_TYP_S5 5     /* SLP_TYP of \_S5 */

#define ACPI_PVPANIC_PORT 0x505 /* one byte, as QEMU has it; implemented by vmm/devices/pvpanic */

/* Writes the tables into [ACPI_START, ACPI_END); *RSDP is the GPA of the RSDP. -ENOSPC or -EFAULT.
 */
int acpi_build(const struct acpi_options *options, const struct memory *memory, uint64_t *rsdp);

#endif
