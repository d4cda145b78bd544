/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/boot/acpi.h"
#include "vmm/devices/acpi_pm.h"

struct fixture {
	struct bus bus;
	struct acpi_pm pm;
	int power_offs, resets;
	bool line;
};

static void on_power_off(void *context)
{
	((struct fixture *)context)->power_offs++;
}

static void on_reset(void *context)
{
	((struct fixture *)context)->resets++;
}

static void set_line(void *context, unsigned int gsi, bool high)
{
	CHECK_EQUAL(gsi, ACPI_SCI_GSI);
	((struct fixture *)context)->line = high;
}

static void setup(struct fixture *fixture)
{
	struct acpi_pm_handlers handlers = { on_power_off, on_reset, fixture };
	struct irq_line sci = { set_line, fixture, ACPI_SCI_GSI };

	*fixture = (struct fixture){ 0 };
	acpi_pm_init(&fixture->pm, &handlers, sci);
	CHECK_EQUAL(acpi_pm_add(&fixture->pm, &fixture->bus), 0);
}

static uint32_t input(struct fixture *fixture, uint16_t port, unsigned int size)
{
	uint32_t value = 0;

	CHECK(bus_dispatch(&fixture->bus, BUS_PORT, port, false, &value, size));
	return value;
}

static void output(struct fixture *fixture, uint16_t port, uint32_t value, unsigned int size)
{
	CHECK(bus_dispatch(&fixture->bus, BUS_PORT, port, true, &value, size));
}

#define STATUS  ACPI_PM_PORT
#define ENABLE  (ACPI_PM_PORT + 2)
#define CONTROL (ACPI_PM_PORT + 4)
#define TIMER   (ACPI_PM_PORT + 8)
#define BUTTON  0x100
#define ENABLES 0x721 /* all bits that ACPI defines */

TEST(acpi_pm, powers_off_on_s5_only)
{
	struct fixture fixture;

	setup(&fixture);
	CHECK_EQUAL(input(&fixture, CONTROL, 2), 1); /* SCI_EN */
	output(&fixture, CONTROL, ACPI_SLP_TYP_S5 << 10, 2);
	output(&fixture, CONTROL, 3 << 10 | 1 << 13, 2);
	CHECK_EQUAL(fixture.power_offs, 0);
	output(&fixture, CONTROL, ACPI_SLP_TYP_S5 << 10 | 1 << 13, 2);
	CHECK_EQUAL(fixture.power_offs, 1);
	CHECK_EQUAL(input(&fixture, CONTROL, 2), ACPI_SLP_TYP_S5 << 10 | 1); /* SLP_EN reads 0 */
	acpi_pm_destroy(&fixture.pm);
}

TEST(acpi_pm, holds_the_sci_until_the_button_is_answered)
{
	struct fixture fixture;

	setup(&fixture);
	CHECK(!acpi_pm_press_power_button(&fixture.pm));
	CHECK(!fixture.line);
	CHECK_EQUAL(input(&fixture, STATUS, 2), BUTTON);
	output(&fixture, ENABLE, 0xffff, 2);
	CHECK_EQUAL(input(&fixture, ENABLE, 2), ENABLES);
	CHECK(fixture.line);
	output(&fixture, STATUS, 0, 2);
	CHECK(fixture.line);
	output(&fixture, STATUS, BUTTON, 2);
	CHECK(!fixture.line);
	CHECK(acpi_pm_press_power_button(&fixture.pm));
	CHECK(fixture.line);
	output(&fixture, STATUS + 1, BUTTON >> 8, 1);
	CHECK(!fixture.line);
	acpi_pm_destroy(&fixture.pm);
}

TEST(acpi_pm, resets_by_its_register)
{
	struct fixture fixture;

	setup(&fixture);
	output(&fixture, ACPI_RESET_PORT, 2, 1);
	CHECK_EQUAL(fixture.resets, 0);
	output(&fixture, ACPI_RESET_PORT, 6, 1);
	CHECK_EQUAL(fixture.resets, 1);
	acpi_pm_destroy(&fixture.pm);
}

TEST(acpi_pm, counts_time)
{
	struct fixture fixture;
	uint32_t start;

	setup(&fixture);
	start = input(&fixture, TIMER, 4);
	for (uint32_t now = start; now - start < 1000; now = input(&fixture, TIMER, 4))
		CHECK(now - start < ACPI_PM_TIMER_HZ * 60u); /* never backwards */
	acpi_pm_destroy(&fixture.pm);
}
