/* SPDX-License-Identifier: Apache-2.0 */
/* The single ACPI tables, and the place they are built in. */
#ifndef KVMSCOPE_BOOT_ACPI_TABLES_H
#define KVMSCOPE_BOOT_ACPI_TABLES_H

#include "vmm/boot/acpi.h"

/* Guest RAM [ACPI_START, ACPI_END), filled from its start; the guest does not run yet. */
struct acpi_area {
	uint8_t *data;
	size_t used;
};

#define ACPI_AREA_SIZE (ACPI_END - ACPI_START)

/* What begins every table but RSDP and FACS; ACPI 6.4, 5.2.6. */
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

/* SIZE zero bytes of the area at a multiple of ALIGNMENT (a power of two), or NULL when it is full.
 */
void *acpi_take(struct acpi_area *area, size_t size, size_t alignment);

/* Where something in the area is for the guest. */
uint64_t acpi_gpa(const struct acpi_area *area, const void *table);

/* Makes the bytes [0, size) add up to zero by the one at *CHECKSUM among them. */
void acpi_checksum(const void *data, size_t size, uint8_t *checksum);

/* Fills TABLE's header for LENGTH bytes in all. The checksum comes last, by acpi_seal(). */
void acpi_header_fill(struct acpi_header *header, const char *signature, uint8_t revision,
		      size_t length);
void acpi_seal(struct acpi_header *header);

/* Each builds its table with what it needs and returns it, or NULL when the area is full. */
struct acpi_header *acpi_dsdt(struct acpi_area *area, const struct acpi_options *options);
struct acpi_header *acpi_fadt(struct acpi_area *area, const struct acpi_header *dsdt);
struct acpi_header *acpi_madt(struct acpi_area *area, const struct acpi_options *options);

#endif
