/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/pvpanic.h"

#include <string.h>

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
	return bus_add(bus, &(struct bus_range){ .space = BUS_PORT,
						 .start = ACPI_PVPANIC_PORT,
						 .size = 1,
						 .access = pvpanic_access,
						 .device = device });
}
