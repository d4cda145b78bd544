/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/acpi.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "shared/error.h"

#define TABLE_ALIGNMENT 16
#define TABLES          2 /* FADT and MADT; the FADT points to the DSDT */

/* ACPI 6.4, 5.2.5.3. */
struct rsdp {
	char signature[8];
	uint8_t checksum; /* of the first 20 bytes */
	char oem[6];
	uint8_t revision;
	uint32_t rsdt;
	uint32_t length;
	uint64_t xsdt;
	uint8_t extended_checksum; /* of all bytes */
	uint8_t reserved[3];
} __attribute__((packed));

#define RSDP_FIRST_PART 20

struct rsdt {
	struct acpi_header header;
	uint32_t tables[TABLES];
} __attribute__((packed));

struct xsdt {
	struct acpi_header header;
	uint64_t tables[TABLES];
} __attribute__((packed));

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

/* Sets the byte *CHECKSUM so that the bytes [0, size) of DATA add up to zero. */
static void set_checksum(const void *data, size_t size, uint8_t *checksum)
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
	set_checksum(header, header->length, &header->checksum);
}

static struct rsdt *build_rsdt(struct acpi_area *area, struct acpi_header *const tables[TABLES])
{
	struct rsdt *rsdt = acpi_alloc(area, sizeof(*rsdt), TABLE_ALIGNMENT);

	if (!rsdt)
		return NULL;
	acpi_header_fill(&rsdt->header, "RSDT", 1, sizeof(*rsdt));
	for (size_t i = 0; i < TABLES; i++)
		rsdt->tables[i] = (uint32_t)acpi_gpa(area, tables[i]);
	acpi_seal(&rsdt->header);
	return rsdt;
}

static struct xsdt *build_xsdt(struct acpi_area *area, struct acpi_header *const tables[TABLES])
{
	struct xsdt *xsdt = acpi_alloc(area, sizeof(*xsdt), TABLE_ALIGNMENT);

	if (!xsdt)
		return NULL;
	acpi_header_fill(&xsdt->header, "XSDT", 1, sizeof(*xsdt));
	for (size_t i = 0; i < TABLES; i++)
		xsdt->tables[i] = acpi_gpa(area, tables[i]);
	acpi_seal(&xsdt->header);
	return xsdt;
}

static void fill_rsdp(const struct acpi_area *area, struct rsdp *rsdp, const struct rsdt *rsdt,
		      const struct xsdt *xsdt)
{
	memcpy(rsdp->signature, "RSD PTR ", sizeof(rsdp->signature));
	memcpy(rsdp->oem, "KVMSCP", sizeof(rsdp->oem));
	rsdp->revision = 2;
	rsdp->rsdt = (uint32_t)acpi_gpa(area, rsdt);
	rsdp->length = sizeof(*rsdp);
	rsdp->xsdt = acpi_gpa(area, xsdt);
	set_checksum(rsdp, RSDP_FIRST_PART, &rsdp->checksum);
	set_checksum(rsdp, sizeof(*rsdp), &rsdp->extended_checksum);
}

/* The RSDP comes first: kernels that do not get its address search for it from ACPI_START. */
static bool build(struct acpi_area *area, const struct acpi_options *options)
{
	struct rsdp *rsdp = acpi_alloc(area, sizeof(*rsdp), TABLE_ALIGNMENT);
	struct acpi_header *dsdt = rsdp ? acpi_dsdt(area, options) : NULL;
	struct acpi_header *fadt = dsdt ? acpi_fadt(area, dsdt) : NULL;
	struct acpi_header *madt = fadt ? acpi_madt(area, options) : NULL;
	struct acpi_header *const tables[TABLES] = { fadt, madt };
	struct rsdt *rsdt = madt ? build_rsdt(area, tables) : NULL;
	struct xsdt *xsdt = rsdt ? build_xsdt(area, tables) : NULL;

	if (!xsdt)
		return false;
	fill_rsdp(area, rsdp, rsdt, xsdt);
	return true;
}

int acpi_build(const struct acpi_options *options, const struct memory *memory, uint64_t *rsdp)
{
	struct acpi_area area = { .data = memory_pointer(memory, ACPI_START, ACPI_AREA_SIZE) };

	assert(options->cpus >= 1);
	if (!area.data)
		return error_set(-EFAULT, "the guest has no RAM at %#llx for its ACPI tables",
				 ACPI_START);
	if (!build(&area, options))
		return error_set(
			-ENOSPC,
			"ACPI tables of %u CPUs and %zu virtio devices do not fit into %llu KiB",
			options->cpus, options->virtio_count, ACPI_AREA_SIZE >> 10);
	*rsdp = ACPI_START;
	return 0;
}
