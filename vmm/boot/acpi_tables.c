/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/acpi_tables.h"

#include <string.h>

void *acpi_alloc(struct acpi_area *area, size_t size, size_t alignment)
{
	size_t start = (area->used + alignment - 1) & ~(alignment - 1);

	if (start > ACPI_AREA_SIZE || size > ACPI_AREA_SIZE - start)
		return NULL;
	area->used = start + size;
	return area->data + start;
}

uint64_t acpi_gpa(const struct acpi_area *area, const void *table)
{
	return ACPI_START + (uint64_t)((const uint8_t *)table - area->data);
}

void acpi_checksum(const void *data, size_t size, uint8_t *checksum)
{
	const uint8_t *bytes = data;
	uint8_t sum = 0;

	*checksum = 0;
	for (size_t i = 0; i < size; i++)
		sum += bytes[i];
	*checksum = (uint8_t)-sum;
}

void acpi_header_fill(struct acpi_header *header, const char *signature, uint8_t revision,
		      size_t length)
{
	memcpy(header->signature, signature, sizeof(header->signature));
	header->length = (uint32_t)length;
	header->revision = revision;
	memcpy(header->oem, "KVMSCP", sizeof(header->oem));
	memcpy(header->oem_table, "KVMSCOPE", sizeof(header->oem_table));
	header->oem_revision = 1;
	memcpy(header->creator, "KVSC", sizeof(header->creator));
	header->creator_revision = 1;
}

void acpi_seal(struct acpi_header *header)
{
	acpi_checksum(header, header->length, &header->checksum);
}
