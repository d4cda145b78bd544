/* SPDX-License-Identifier: Apache-2.0 */
/* ACPI tables for unmodified kernels: RSDP, XSDT, FADT, MADT, and a DSDT with the serial port
 * and each virtio-mmio device (LNRO0005). ACPI 6.4. */
#ifndef KVMSCOPE_BOOT_ACPI_H
#define KVMSCOPE_BOOT_ACPI_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/guest_ram.h"

/* Range of the tables: below 1 MiB, after the EBDA, type ACPI in the e820 map. */
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

/* The machine's fixed hardware as the FADT describes it; vmm/devices/acpi_pm implements it. PM1a
 * event block (4 bytes), control block (2) and PM timer (4) are at +0, +4 and +8 of ACPI_PM_PORT.
 */
#define ACPI_PM_PORT    0x600
#define ACPI_SCI_GSI    9
#define ACPI_RESET_PORT 0xcf9 /* reset register: writing 6 resets */
#define ACPI_SLP_TYP_S5 5     /* SLP_TYP of \_S5 */

#define ACPI_PVPANIC_PORT 0x505 /* one byte, as in QEMU; vmm/devices/port_devices implements it */

/* Writes the tables into [ACPI_START, ACPI_END); *RSDP is the GPA of the RSDP. -ENOSPC or
 * -EFAULT. */
int acpi_build(const struct acpi_options *options, const struct memory *memory, uint64_t *rsdp);

/* Internal to acpi*.c from here on. Guest RAM [ACPI_START, ACPI_END), filled from its start before
 * the guest runs. */
struct acpi_area {
	uint8_t *data;
	size_t used;
};

#define ACPI_AREA_SIZE (ACPI_END - ACPI_START)

/* The header of every table but RSDP and FACS; ACPI 6.4, 5.2.6. */
struct acpi_header {
	char signature[4];
	uint32_t length;
	uint8_t revision;
	uint8_t checksum;
	char oem[6];
	char oem_table[8];
	uint32_t oem_revision;
	char creator[4];
	uint32_t creator_revision;
} __attribute__((packed));

/* Allocates SIZE zero bytes at a multiple of ALIGNMENT (a power of two). NULL if the area is
 * full. */
void *acpi_alloc(struct acpi_area *area, size_t size, size_t alignment);

/* The GPA of TABLE, which points into the area. */
uint64_t acpi_gpa(const struct acpi_area *area, const void *table);

/* Fills the header of a table of LENGTH bytes, except for the checksum, which acpi_seal() sets
 * last. */
void acpi_header_fill(struct acpi_header *header, const char *signature, uint8_t revision,
		      size_t length);
void acpi_seal(struct acpi_header *header);

/* Each allocates and builds a table. NULL if the area is full. */
struct acpi_header *acpi_dsdt(struct acpi_area *area, const struct acpi_options *options);
struct acpi_header *acpi_fadt(struct acpi_area *area, const struct acpi_header *dsdt);
struct acpi_header *acpi_madt(struct acpi_area *area, const struct acpi_options *options);

#endif
