/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port devices under arbitrary accesses. Input: five bytes for each access: the port (from a
 * list) and direction, the offset and size, a value.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/boot/acpi.h"
#include "vmm/devices/acpi_pm.h"
#include "vmm/devices/port_devices.h"
#include "vmm/devices/rtc.h"
#include "vmm/devices/serial.h"

static struct event_loop *loop;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	if (event_loop_create(&loop))
		abort();
	return 0;
}

static void ignore(void *context)
{
}

static void ignore_value(void *context, uint32_t value)
{
}

static void ignore_panic(void *context, bool crash_kernel)
{
}

static void set_line(void *context, unsigned int gsi, bool high)
{
}

static void access_port(const struct bus *bus, const uint8_t step[5])
{
	static const uint16_t ports[] = {
		SERIAL_PORT,     RTC_INDEX_PORT,   0x60, 0x64, ACPI_PM_PORT, ACPI_RESET_PORT,
		DEBUG_EXIT_PORT, ACPI_PVPANIC_PORT
	};
	uint16_t port = ports[step[0] >> 1 & 7] + (step[1] & 0xf);
	uint64_t value = step[2] | (uint64_t)step[3] << 8 | (uint64_t)step[4] << 16;

	bus_dispatch(bus, BUS_PORT, port, step[0] & 1, &value, 1u << (step[1] >> 4) % 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct serial_options options = { .output_fd = -1, .input_fd = -1 };
	struct acpi_pm_handlers handlers = { .power_off = ignore, .reset = ignore };
	struct debug_exit debug_exit = { .exit = ignore_value };
	struct pvpanic pvpanic = { .panic = ignore_panic };
	struct i8042 i8042 = { .reset = ignore };
	struct irq_line line = { .set = set_line };
	struct bus bus = { 0 };
	struct serial *serial;
	struct acpi_pm pm;
	struct rtc rtc;

	rtc_init(&rtc, NULL);
	acpi_pm_init(&pm, &handlers, line);
	if (serial_create(&serial, &options, loop, line) || serial_add(serial, &bus, SERIAL_PORT) ||
	    rtc_add(&rtc, &bus) || i8042_add(&i8042, &bus) || acpi_pm_add(&pm, &bus) ||
	    debug_exit_add(&debug_exit, &bus) || pvpanic_add(&pvpanic, &bus))
		abort();
	for (; size >= 5; data += 5, size -= 5)
		access_port(&bus, data);
	serial_destroy(serial);
	acpi_pm_destroy(&pm);
	rtc_destroy(&rtc);
	return 0;
}
