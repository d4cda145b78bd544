/* SPDX-License-Identifier: Apache-2.0 */
/* The DSDT, in AML: devices that cannot be probed. */
#include <stdio.h>

#include "vmm/boot/acpi.h"
#include "vmm/boot/aml.h"

#define DSDT_REVISION 2 /* 64-bit integers */

/* Upper bound for the bytes of a device below; a table that exceeds its area is refused. */
#define DEVICE_SIZE 160

/* PC standard serial port and RTC. */
#define COM1_PORT  0x3f8
#define COM1_PORTS 8
#define COM1_IRQ   4

#define RTC_PORT  0x70
#define RTC_PORTS 2
#define RTC_IRQ   8

static void add_isa_device(struct aml *aml, const char *name, const char *id, uint16_t port,
			   uint8_t ports, unsigned int irq)
{
	aml_mark device = aml_device(aml, name);
	aml_mark resources;

	aml_name(aml, "_HID");
	aml_eisa_id(aml, id);
	aml_name(aml, "_UID");
	aml_integer(aml, 0);
	aml_name(aml, "_CRS");
	resources = aml_resources(aml);
	aml_resource_io(aml, port, ports);
	aml_resource_irq(aml, irq);
	aml_resources_end(aml, resources);
	aml_end(aml, device);
}

/* As in QEMU (hw/misc/pvpanic-isa.c); _STA: present, enabled, shown, working (ACPI 6.4, 6.3.7). */
static void add_pvpanic(struct aml *aml)
{
	aml_mark device = aml_device(aml, "PEVT");
	aml_mark resources;

	aml_name(aml, "_HID");
	aml_string(aml, "QEMU0001");
	aml_name(aml, "_CRS");
	resources = aml_resources(aml);
	aml_resource_io(aml, ACPI_PVPANIC_PORT, 1);
	aml_resources_end(aml, resources);
	aml_name(aml, "_STA");
	aml_integer(aml, 0xf);
	aml_end(aml, device);
}

/* LNRO0005 is the id of virtio-mmio in Linux (drivers/virtio/virtio_mmio.c). _CCA: coherent DMA. */
static void add_virtio_device(struct aml *aml, size_t number,
			      const struct acpi_virtio_device *virtio)
{
	char name[8];
	aml_mark device, resources;

	snprintf(name, sizeof(name), "VR%02zX", number & 0xff);
	device = aml_device(aml, name);
	aml_name(aml, "_HID");
	aml_string(aml, "LNRO0005");
	aml_name(aml, "_UID");
	aml_integer(aml, number);
	aml_name(aml, "_CCA");
	aml_integer(aml, 1);
	aml_name(aml, "_CRS");
	resources = aml_resources(aml);
	aml_resource_memory(aml, (uint32_t)virtio->gpa, virtio->size);
	aml_resource_interrupt(aml, virtio->gsi);
	aml_resources_end(aml, resources);
	aml_end(aml, device);
}

/* \_S5: the values that a power-off writes to SLP_TYP of PM1a and PM1b. */
static void add_power_off(struct aml *aml)
{
	aml_mark package;

	aml_name(aml, "\\_S5");
	package = aml_package(aml, 4);
	aml_integer(aml, ACPI_SLP_TYP_S5);
	aml_integer(aml, 0);
	aml_integer(aml, 0);
	aml_integer(aml, 0);
	aml_end(aml, package);
}

static void add_all(struct aml *aml, const struct acpi_options *options)
{
	aml_mark scope;

	add_power_off(aml);
	scope = aml_scope(aml, "\\_SB");
	add_isa_device(aml, "COM1", "PNP0501", COM1_PORT, COM1_PORTS, COM1_IRQ);
	add_isa_device(aml, "RTC0", "PNP0B00", RTC_PORT, RTC_PORTS, RTC_IRQ);
	add_pvpanic(aml);
	for (size_t i = 0; i < options->virtio_count; i++)
		add_virtio_device(aml, i, &options->virtio[i]);
	aml_end(aml, scope);
}

struct acpi_header *acpi_dsdt(struct acpi_area *area, const struct acpi_options *options)
{
	size_t capacity = sizeof(struct acpi_header) + (options->virtio_count + 4) * DEVICE_SIZE;
	struct acpi_header *dsdt = acpi_alloc(area, capacity, 16);
	struct aml aml = { .data = (uint8_t *)dsdt, .capacity = capacity, .size = sizeof(*dsdt) };

	if (!dsdt || options->virtio_count > 0x100)
		return NULL;
	add_all(&aml, options);
	if (aml.full)
		return NULL;
	acpi_header_fill(dsdt, "DSDT", DSDT_REVISION, aml.size);
	acpi_seal(dsdt);
	return dsdt;
}
