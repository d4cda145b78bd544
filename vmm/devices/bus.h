/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bus: which device answers a port or an MMIO address. Devices are added
 * before the guest runs; after that the table is read-only and any vCPU
 * thread may use it. A device's own lock serializes its accesses.
 */
#ifndef KVMSCOPE_DEVICES_BUS_H
#define KVMSCOPE_DEVICES_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_space { BUS_PORT, BUS_MMIO };

/*
 * OFFSET is within the device's range, and OFFSET + SIZE too; SIZE is 1, 2, 4
 * or 8. Reads fill DATA, which comes in as all ones: a device leaves alone
 * what it does not decode. Little-endian. On any vCPU thread.
 */
typedef void bus_access(void *device, uint64_t offset, bool write, void *data, unsigned int size);

struct bus_range {
	enum bus_space space;
	uint64_t start;
	uint64_t size;
	bus_access *access;
	void *device; /* not owned */
};

#define BUS_RANGES_MAX 64

struct bus {
	struct bus_range ranges[BUS_RANGES_MAX];
	size_t range_count;
};

/*
 * -EEXIST where a range overlaps another, -ENOSPC where the table is full,
 * -EINVAL for an empty or wrapping range. Before the guest runs.
 */
int bus_add(struct bus *bus, const struct bus_range *range);

/*
 * Gives the access to the device that owns the whole of [address, address +
 * size). Nobody there: reads are all ones, writes are dropped, and false is
 * returned. That is also what Linux's probing of PCI (ports 0xcf8 and 0xcfc,
 * arch/x86/pci/direct.c) has to meet where there is no PCI. Any vCPU thread.
 */
bool bus_dispatch(const struct bus *bus, enum bus_space space, uint64_t address, bool write,
		  void *data, unsigned int size);

/* How a device raises its line; implemented by the machine. Any thread. */
struct irq_line {
	void (*set)(void *context, unsigned int gsi, bool high);
	void *context;
	unsigned int gsi;
};

static inline void irq_line_set(const struct irq_line *line, bool high)
{
	line->set(line->context, line->gsi, high);
}

#endif
