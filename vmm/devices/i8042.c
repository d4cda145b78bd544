/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/i8042.h"

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
	struct bus_range range = {
		.space = BUS_PORT, .start = DATA_PORT, .size = 1, .device = device
	};
	int error;

	range.access = data_access;
	error = bus_add(bus, &range);
	if (error)
		return error;
	range.start = COMMAND_PORT;
	range.access = command_access;
	return bus_add(bus, &range);
}
