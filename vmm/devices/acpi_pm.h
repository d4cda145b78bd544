/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI's fixed hardware (ACPI 6.4, section 4.8), at the ports that the FADT
 * of vmm/boot/acpi.h names: PM1a event and control blocks, the PM timer, the
 * power button, the reset register. There is no SMI and no legacy mode:
 * SCI_EN reads 1 always. Of the events only the power button exists; the
 * timer does not raise TMR_STS (nobody who can read it again needs it).
 */
#ifndef KVMSCOPE_DEVICES_ACPI_PM_H
#define KVMSCOPE_DEVICES_ACPI_PM_H

#include <pthread.h>
#include <stdint.h>

#include "vmm/devices/bus.h"

#define ACPI_PM_TIMER_HZ 3579545

/* What the guest may ask for; on the vCPU's thread that did. */
struct acpi_pm_handlers {
	void (*power_off)(void *context); /* SLP_EN with the SLP_TYP of S5 */
	void (*reset)(void *context);     /* the reset register */
	void *context;
};

struct acpi_pm {
	struct acpi_pm_handlers handlers;
	struct irq_line sci; /* level */
	pthread_mutex_t lock;
	uint16_t status, enable, control;
};

/* Nothing here can fail. Any thread. */
void acpi_pm_init(struct acpi_pm *pm, const struct acpi_pm_handlers *handlers, struct irq_line sci);
void acpi_pm_destroy(struct acpi_pm *pm);

/* The machine is reset: registers as they were at first. Any thread. */
void acpi_pm_reset(struct acpi_pm *pm);

/* Puts the blocks and the reset register on BUS; PM must live as long. The errors of bus_add(). */
int acpi_pm_add(struct acpi_pm *pm, struct bus *bus);

/*
 * Presses the power button: raises the SCI until the guest has cleared
 * PWRBTN_STS. False where the guest has not enabled the button's event, so
 * that nobody is there to take it; it stays pressed all the same. Any thread.
 */
bool acpi_pm_press_power_button(struct acpi_pm *pm);

#endif
