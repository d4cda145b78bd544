/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/acpi_pm.h"

#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "vmm/boot/acpi.h"

#define EVENT_BLOCK_SIZE   4
#define CONTROL_BLOCK_SIZE 2
#define TIMER_SIZE         4

#define STATUS_OFFSET  0
#define ENABLE_OFFSET  2
#define CONTROL_OFFSET 4
#define TIMER_OFFSET   8

/* ACPI 6.4, tables 4.13, 4.14 and 4.15. */
#define PM1_POWER_BUTTON (1u << 8)
/*
 * Enable bits that can be set: timer, global lock, both buttons, RTC. Only the power button's event
 * occurs, but ACPICA (evxfevnt.c) reports lock and RTC as broken hardware if it cannot enable them.
 */
#define PM1_ENABLES          0x0721u
#define PM1_SCI_EN           (1u << 0)
#define PM1_SLP_TYP_SHIFT    10
#define PM1_SLP_TYP_MASK     7u
#define PM1_SLP_EN           (1u << 13)
#define PM1_CONTROL_READABLE ((PM1_SLP_TYP_MASK << PM1_SLP_TYP_SHIFT) | PM1_SCI_EN)

/* Bit 2 of 0xcf9 starts the reset; bit 1 selects its kind. */
#define RESET_CPU (1u << 2)

void acpi_pm_init(struct acpi_pm *pm, const struct acpi_pm_handlers *handlers, struct irq_line sci)
{
	*pm = (struct acpi_pm){ .handlers = *handlers, .sci = sci, .control = PM1_SCI_EN };
	pthread_mutex_init(&pm->lock, NULL);
}

void acpi_pm_destroy(struct acpi_pm *pm)
{
	pthread_mutex_destroy(&pm->lock);
}

static void update_sci(struct acpi_pm *pm)
{
	irq_line_set(&pm->sci, pm->status & pm->enable);
}

void acpi_pm_reset(struct acpi_pm *pm)
{
	pthread_mutex_lock(&pm->lock);
	pm->status = pm->enable = 0;
	pm->control = PM1_SCI_EN;
	update_sci(pm);
	pthread_mutex_unlock(&pm->lock);
}

static uint16_t *half_word(struct acpi_pm *pm, uint64_t offset)
{
	switch (offset & ~1ull) {
	case STATUS_OFFSET:
		return &pm->status;
	case ENABLE_OFFSET:
		return &pm->enable;
	default:
		return &pm->control;
	}
}

/* Writing 1 clears a status bit. */
static void write_byte(struct acpi_pm *pm, uint64_t offset, uint8_t value)
{
	unsigned int shift = offset % 2 * 8;
	uint16_t *word = half_word(pm, offset);
	uint16_t bits = (uint16_t)(value << shift);
	uint16_t others = (uint16_t)(*word & ~(0xff << shift));

	if (word == &pm->status)
		*word &= (uint16_t)~bits;
	else if (word == &pm->enable)
		*word = (others | bits) & PM1_ENABLES;
	else
		*word = ((others | bits) & PM1_CONTROL_READABLE) | PM1_SCI_EN;
}

static bool requests_power_off(const struct acpi_pm *pm, uint64_t offset, uint8_t value)
{
	return offset == CONTROL_OFFSET + 1 && (value << 8 & PM1_SLP_EN) &&
	       (pm->control >> PM1_SLP_TYP_SHIFT & PM1_SLP_TYP_MASK) == ACPI_SLP_TYP_S5;
}

/* Byte by byte: ACPI allows any access width (section 4.8.3). */
static void registers_access(void *context, uint64_t offset, bool write, void *data,
			     unsigned int size)
{
	struct acpi_pm *pm = context;
	bool power_off = false;
	uint8_t *bytes = data;

	pthread_mutex_lock(&pm->lock);
	for (unsigned int i = 0; i < size; i++, offset++) {
		if (!write) {
			bytes[i] = (uint8_t)(*half_word(pm, offset) >> offset % 2 * 8);
			continue;
		}
		write_byte(pm, offset, bytes[i]);
		power_off |= requests_power_off(pm, offset, bytes[i]);
	}
	update_sci(pm);
	pthread_mutex_unlock(&pm->lock);
	if (power_off)
		pm->handlers.power_off(pm->handlers.context);
}

/* 32 bits wide (FLAG_TIMER_32_BITS of the FADT); it wraps. */
static uint32_t timer_value(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t)((uint64_t)now.tv_sec * ACPI_PM_TIMER_HZ +
			  (uint64_t)now.tv_nsec * ACPI_PM_TIMER_HZ / NS_PER_S);
}

static void timer_access(void *context, uint64_t offset, bool write, void *data, unsigned int size)
{
	uint32_t value = timer_value();

	if (!write)
		memcpy(data, (uint8_t *)&value + offset, size);
}

static void reset_access(void *context, uint64_t offset, bool write, void *data, unsigned int size)
{
	struct acpi_pm *pm = context;

	if (!write)
		memset(data, 0, size);
	else if (*(uint8_t *)data & RESET_CPU)
		pm->handlers.reset(pm->handlers.context);
}

int acpi_pm_add(struct acpi_pm *pm, struct bus *bus)
{
	int error = bus_add(bus, BUS_PORT, ACPI_PM_PORT, EVENT_BLOCK_SIZE + CONTROL_BLOCK_SIZE,
			    registers_access, pm);

	if (!error)
		error = bus_add(bus, BUS_PORT, ACPI_PM_PORT + TIMER_OFFSET, TIMER_SIZE,
				timer_access, pm);
	return error ? error : bus_add(bus, BUS_PORT, ACPI_RESET_PORT, 1, reset_access, pm);
}

bool acpi_pm_press_power_button(struct acpi_pm *pm)
{
	bool enabled;

	pthread_mutex_lock(&pm->lock);
	pm->status |= PM1_POWER_BUTTON;
	enabled = pm->enable & PM1_POWER_BUTTON;
	update_sci(pm);
	pthread_mutex_unlock(&pm->lock);
	return enabled;
}
