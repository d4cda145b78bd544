/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI's fixed hardware (ACPI 6.4, section 4.8) at the ports given in the FADT
 * (vmm/boot/acpi.h): PM1a event and control blocks, PM timer, power button, reset register.
 * There is no SMI and no legacy mode: SCI_EN always reads 1. The power button is the only event.
 * TMR_STS is never set: kernels detect that the timer has wrapped by reading it.
 */
#ifndef KVMSCOPE_DEVICES_ACPI_PM_H
#define KVMSCOPE_DEVICES_ACPI_PM_H

#include <pthread.h>
#include <stdint.h>

#include "vmm/devices/bus.h"

#define ACPI_PM_TIMER_HZ 3579545

/* Requests of the guest, on that vCPU's thread. */
struct acpi_pm_handlers {
	void (*power_off)(void *context); /* SLP_EN with the SLP_TYP of S5 */
	void (*reset)(void *context);     /* the reset register */
	void *context;
};

struct acpi_pm {
	struct acpi_pm_handlers handlers;
	struct irq_line sci; /* level triggered */
	pthread_mutex_t lock;
	uint16_t status, enable, control;
};

/* Cannot fail. Any thread. */
void acpi_pm_init(struct acpi_pm *pm, const struct acpi_pm_handlers *handlers, struct irq_line sci);
void acpi_pm_destroy(struct acpi_pm *pm);

/* Resets the registers. Any thread. */
void acpi_pm_reset(struct acpi_pm *pm);

/* Adds the blocks and the reset register to BUS; PM must live as long. The errors of bus_add(). */
int acpi_pm_add(struct acpi_pm *pm, struct bus *bus);

/*
 * Presses the power button: raises the SCI until the guest has cleared PWRBTN_STS. False if the
 * guest has not enabled the event and will not react; the button stays pressed nevertheless. Any
 * thread.
 */
bool acpi_pm_press_power_button(struct acpi_pm *pm);

#endif
