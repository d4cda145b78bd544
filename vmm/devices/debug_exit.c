/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/debug_exit.h"

#include <string.h>

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
	return bus_add(bus, &(struct bus_range){ .space = BUS_PORT,
						 .start = DEBUG_EXIT_PORT,
						 .size = DEBUG_EXIT_SIZE,
						 .access = debug_exit_access,
						 .device = device });
}
