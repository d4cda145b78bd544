/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupt controllers and CPUs: MADT; ACPI 6.4, 5.2.12. */
#include <assert.h>
#include <string.h>

#include "vmm/boot/acpi.h"

#define MADT_REVISION  5
#define LAPIC_ADDRESS  0xfee00000u
#define IOAPIC_ADDRESS 0xfec00000u
#define IOAPIC_ID      0
#define FLAG_PIC       1u /* there are two 8259 as well */

/* Higher LAPIC ids need x2APIC entries. */
#define LAPIC_ID_MAX 254

enum {
	ENTRY_LAPIC = 0,
	ENTRY_IOAPIC = 1,
	ENTRY_OVERRIDE = 2,
	ENTRY_LAPIC_NMI = 4,
};

#define LAPIC_ENABLED 1u
#define ALL_CPUS      0xff
#define NMI_LINT      1

/* MPS INTI flags: conforming to the bus; or active high and level triggered. */
#define INTI_BUS        0
#define INTI_HIGH_LEVEL 0x0d

struct madt {
	struct acpi_header header;
	uint32_t lapic_address;
	uint32_t flags;
} __attribute__((packed));

struct lapic {
	uint8_t type, length, uid, id;
	uint32_t flags;
} __attribute__((packed));

struct ioapic {
	uint8_t type, length, id, reserved;
	uint32_t address;
	uint32_t gsi_base;
} __attribute__((packed));

struct interrupt_override {
	uint8_t type, length, bus, source;
	uint32_t gsi;
	uint16_t flags;
} __attribute__((packed));

struct lapic_nmi {
	uint8_t type, length, uid;
	uint16_t flags;
	uint8_t lint;
} __attribute__((packed));

static uint8_t *append(uint8_t *at, const void *entry, size_t size)
{
	memcpy(at, entry, size);
	return at + size;
}

static uint8_t *append_cpus(uint8_t *at, unsigned int cpus)
{
	for (unsigned int i = 0; i < cpus; i++) {
		const struct lapic lapic = { ENTRY_LAPIC, sizeof(lapic), (uint8_t)i, (uint8_t)i,
					     LAPIC_ENABLED };

		at = append(at, &lapic, sizeof(lapic));
	}
	return at;
}

/*
 * There is no override for the PIT: KVM's default routing connects GSI 0 to pin 0 of the IOAPIC
 * (KVM_CREATE_IRQCHIP in Documentation/virt/kvm/api.rst), not to pin 2 as a PC chipset does. The
 * SCI is level triggered; ISA's default is edge.
 */
static uint8_t *append_interrupts(uint8_t *at)
{
	const struct ioapic ioapic = {
		ENTRY_IOAPIC, sizeof(ioapic), IOAPIC_ID, 0, IOAPIC_ADDRESS, 0
	};
	const struct interrupt_override sci = {
		ENTRY_OVERRIDE, sizeof(sci), 0, ACPI_SCI_GSI, ACPI_SCI_GSI, INTI_HIGH_LEVEL,
	};
	const struct lapic_nmi nmi = { ENTRY_LAPIC_NMI, sizeof(nmi), ALL_CPUS, INTI_BUS, NMI_LINT };

	at = append(at, &ioapic, sizeof(ioapic));
	at = append(at, &sci, sizeof(sci));
	return append(at, &nmi, sizeof(nmi));
}

struct acpi_header *acpi_madt(struct acpi_area *area, const struct acpi_options *options)
{
	size_t length = sizeof(struct madt) + options->cpus * sizeof(struct lapic) +
			sizeof(struct ioapic) + sizeof(struct interrupt_override) +
			sizeof(struct lapic_nmi);
	struct madt *madt = options->cpus <= LAPIC_ID_MAX + 1 ? acpi_alloc(area, length, 16) : NULL;
	uint8_t *end;

	if (!madt)
		return NULL;
	acpi_header_fill(&madt->header, "APIC", MADT_REVISION, length);
	madt->lapic_address = LAPIC_ADDRESS;
	madt->flags = FLAG_PIC;
	end = append_interrupts(append_cpus((uint8_t *)(madt + 1), options->cpus));
	assert(end == (uint8_t *)madt + length);
	acpi_seal(&madt->header);
	return &madt->header;
}
