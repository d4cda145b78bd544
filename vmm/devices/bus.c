/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/bus.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "shared/error.h"

/* Last address, so that a range may end at the top of the space. */
static uint64_t last_address(const struct bus_range *range)
{
	return range->start + (range->size - 1);
}

static bool overlaps(const struct bus_range *a, const struct bus_range *b)
{
	return a->space == b->space && a->start <= last_address(b) && b->start <= last_address(a);
}

int bus_add(struct bus *bus, enum bus_space space, uint64_t start, uint64_t size,
	    bus_access *access, void *device)
{
	const struct bus_range range = { space, start, size, access, device };

	if (!size || last_address(&range) < start)
		return error_set(-EINVAL,
				 "bus range at %#" PRIx64 " of %#" PRIx64
				 " bytes is empty or wraps",
				 start, size);
	if (bus->range_count == BUS_RANGES_MAX)
		return error_set(-ENOSPC,
				 "the bus is full: at most %d devices fit; use fewer devices",
				 BUS_RANGES_MAX);
	for (size_t i = 0; i < bus->range_count; i++) {
		if (overlaps(&bus->ranges[i], &range))
			return error_set(-EEXIST,
					 "bus range at %#" PRIx64 " overlaps the one at %#" PRIx64,
					 start, bus->ranges[i].start);
	}
	bus->ranges[bus->range_count++] = range;
	return 0;
}

static bool owns(const struct bus_range *range, enum bus_space space, uint64_t address,
		 unsigned int size)
{
	uint64_t offset = address - range->start;

	return range->space == space && address >= range->start && size <= range->size &&
	       offset <= range->size - size;
}

bool bus_dispatch(const struct bus *bus, enum bus_space space, uint64_t address, bool write,
		  void *data, unsigned int size)
{
	if (!write)
		memset(data, 0xff, size);
	for (size_t i = 0; i < bus->range_count; i++) {
		const struct bus_range *range = &bus->ranges[i];

		if (!owns(range, space, address, size))
			continue;
		range->access(range->device, address - range->start, write, data, size);
		return true;
	}
	if (!write && space == BUS_MMIO)
		memset(data, 0, size);
	return false;
}
