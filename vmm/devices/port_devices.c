/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/port_devices.h"

#include <string.h>

#define DATA_PORT    0x60
#define COMMAND_PORT 0x64

/* Pulse output port: a 0 among the low four bits pulses that line; bit 0 is reset. */
#define COMMAND_PULSE_RESET 0xfe

static void data_access(void *context, uint64_t offset, bool write, void *data, unsigned int size)
{
	if (!write)
		memset(data, 0, size);
}

static void command_access(void *context, uint64_t offset, bool write, void *data,
			   unsigned int size)
{
	struct i8042 *device = context;

	if (!write)
		memset(data, 0, size);
	else if (*(uint8_t *)data == COMMAND_PULSE_RESET)
		device->reset(device->context);
}

int i8042_add(struct i8042 *device, struct bus *bus)
{
	int error = bus_add(bus, BUS_PORT, DATA_PORT, 1, data_access, device);

	return error ? error : bus_add(bus, BUS_PORT, COMMAND_PORT, 1, command_access, device);
}

#define DEBUG_EXIT_SIZE 4

static void debug_exit_access(void *context, uint64_t offset, bool write, void *data,
			      unsigned int size)
{
	struct debug_exit *device = context;
	uint32_t value = 0;

	if (!write) {
		memset(data, 0, size);
		return;
	}
	if (offset || size > sizeof(value))
		return;
	memcpy(&value, data, size);
	device->exit(device->context, value);
}

int debug_exit_add(struct debug_exit *device, struct bus *bus)
{
	return bus_add(bus, BUS_PORT, DEBUG_EXIT_PORT, DEBUG_EXIT_SIZE, debug_exit_access, device);
}

#define EVENTS (PVPANIC_PANICKED | PVPANIC_CRASH_LOADED)

static void pvpanic_access(void *context, uint64_t offset, bool write, void *data,
			   unsigned int size)
{
	struct pvpanic *device = context;
	uint8_t *events = data;

	if (!write) {
		memset(data, 0, size);
		*events = EVENTS;
	} else if (*events & EVENTS && device->panic) {
		device->panic(device->context, *events & PVPANIC_CRASH_LOADED);
	}
}

int pvpanic_add(struct pvpanic *device, struct bus *bus)
{
	return bus_add(bus, BUS_PORT, ACPI_PVPANIC_PORT, 1, pvpanic_access, device);
}
