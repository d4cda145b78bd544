/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed hardware: FADT and FACS; ACPI 6.4, 5.2.9 and 5.2.10. */
#include <string.h>

#include "vmm/boot/acpi.h"

#define FADT_REVISION       6
#define FADT_MINOR_REVISION 4

#define PROFILE_ENTERPRISE_SERVER 4

/* Devices on ISA ports and an RTC, but no VGA. No 8042 flag: there is no keyboard to probe for. */
#define BOOT_ARCH_LEGACY_DEVICES (1u << 0)
#define BOOT_ARCH_NO_VGA         (1u << 2)

#define FLAG_WBINVD                (1u << 0)
#define FLAG_C1                    (1u << 2)
#define FLAG_NO_FIXED_SLEEP_BUTTON (1u << 5)
#define FLAG_NO_FIXED_RTC_WAKE     (1u << 6)
#define FLAG_TIMER_32_BITS         (1u << 8)
#define FLAG_RESET_REGISTER        (1u << 10)

/* C2 and C3 are unsupported at latencies of at least these values. */
#define NO_C2 101
#define NO_C3 1001

/* The "full reset" of the ICH chips' reset control register. */
#define RESET_VALUE 6

#define EVENT_LENGTH   4
#define CONTROL_LENGTH 2
#define TIMER_LENGTH   4
#define EVENT_PORT     ACPI_PM_PORT
#define CONTROL_PORT   (ACPI_PM_PORT + 4)
#define TIMER_PORT     (ACPI_PM_PORT + 8)

#define FACS_ALIGNMENT 64

struct generic_address {
	uint8_t space;
	uint8_t bits;
	uint8_t offset;
	uint8_t access;
	uint64_t address;
} __attribute__((packed));

struct fadt {
	struct acpi_header header;
	uint32_t facs;
	uint32_t dsdt;
	uint8_t reserved1;
	uint8_t profile;
	uint16_t sci;
	uint32_t smi_command;
	uint8_t acpi_enable, acpi_disable, s4bios, pstate;
	uint32_t pm1a_event, pm1b_event, pm1a_control, pm1b_control, pm2_control, pm_timer, gpe0,
		gpe1;
	uint8_t pm1_event_length, pm1_control_length, pm2_control_length, pm_timer_length;
	uint8_t gpe0_length, gpe1_length, gpe1_base, cstate;
	uint16_t c2_latency, c3_latency, flush_size, flush_stride;
	uint8_t duty_offset, duty_width, day_alarm, month_alarm, century;
	uint16_t boot_arch;
	uint8_t reserved2;
	uint32_t flags;
	struct generic_address reset_register;
	uint8_t reset_value;
	uint16_t arm_boot_arch;
	uint8_t minor_revision;
	uint64_t x_facs, x_dsdt;
	struct generic_address x_pm1a_event, x_pm1b_event, x_pm1a_control, x_pm1b_control,
		x_pm2_control, x_pm_timer, x_gpe0, x_gpe1;
	struct generic_address sleep_control, sleep_status;
	uint64_t hypervisor;
} __attribute__((packed));

_Static_assert(sizeof(struct fadt) == 276, "a FADT of revision 6 has 276 bytes");

struct facs {
	char signature[4];
	uint32_t length;
	uint32_t hardware_signature;
	uint32_t waking_vector;
	uint32_t global_lock;
	uint32_t flags;
	uint64_t x_waking_vector;
	uint8_t version;
	uint8_t reserved1[3];
	uint32_t ospm_flags;
	uint8_t reserved2[24];
} __attribute__((packed));

_Static_assert(sizeof(struct facs) == 64, "a FACS has 64 bytes");

static struct generic_address port(uint16_t address, uint8_t bytes)
{
	enum { SYSTEM_IO = 1, BYTE = 1, WORD = 2, DWORD = 3 };

	return (struct generic_address){
		.space = SYSTEM_IO,
		.bits = (uint8_t)(bytes * 8),
		.access = bytes == 1   ? BYTE
			  : bytes == 2 ? WORD
				       : DWORD,
		.address = address,
	};
}

static void fill_ports(struct fadt *fadt)
{
	fadt->pm1a_event = EVENT_PORT;
	fadt->pm1a_control = CONTROL_PORT;
	fadt->pm_timer = TIMER_PORT;
	fadt->pm1_event_length = EVENT_LENGTH;
	fadt->pm1_control_length = CONTROL_LENGTH;
	fadt->pm_timer_length = TIMER_LENGTH;
	fadt->x_pm1a_event = port(EVENT_PORT, EVENT_LENGTH);
	/* status and enable are adjacent 16-bit registers */
	fadt->x_pm1a_event.access = port(0, 2).access;
	fadt->x_pm1a_control = port(CONTROL_PORT, CONTROL_LENGTH);
	fadt->x_pm_timer = port(TIMER_PORT, TIMER_LENGTH);
	fadt->reset_register = port(ACPI_RESET_PORT, 1);
	fadt->reset_value = RESET_VALUE;
}

static struct facs *build_facs(struct acpi_area *area)
{
	struct facs *facs = acpi_alloc(area, sizeof(*facs), FACS_ALIGNMENT);

	if (!facs)
		return NULL;
	memcpy(facs->signature, "FACS", sizeof(facs->signature));
	facs->length = sizeof(*facs);
	facs->version = 2;
	return facs;
}

/* Without an SMI command port there is no legacy mode: the machine starts in ACPI mode. */
struct acpi_header *acpi_fadt(struct acpi_area *area, const struct acpi_header *dsdt)
{
	struct facs *facs = build_facs(area);
	struct fadt *fadt = facs ? acpi_alloc(area, sizeof(*fadt), 16) : NULL;

	if (!fadt)
		return NULL;
	acpi_header_fill(&fadt->header, "FACP", FADT_REVISION, sizeof(*fadt));
	fadt->minor_revision = FADT_MINOR_REVISION;
	fadt->facs = (uint32_t)acpi_gpa(area, facs);
	fadt->dsdt = (uint32_t)acpi_gpa(area, dsdt);
	fadt->x_dsdt = acpi_gpa(area, dsdt);
	fadt->profile = PROFILE_ENTERPRISE_SERVER;
	fadt->sci = ACPI_SCI_GSI;
	fadt->c2_latency = NO_C2;
	fadt->c3_latency = NO_C3;
	fadt->boot_arch = BOOT_ARCH_LEGACY_DEVICES | BOOT_ARCH_NO_VGA;
	fadt->flags = FLAG_WBINVD | FLAG_C1 | FLAG_NO_FIXED_SLEEP_BUTTON | FLAG_NO_FIXED_RTC_WAKE |
		      FLAG_TIMER_32_BITS | FLAG_RESET_REGISTER;
	fill_ports(fadt);
	acpi_seal(&fadt->header);
	return &fadt->header;
}
