/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bus: maps ports and MMIO addresses to devices. Devices are added before the guest runs;
 * afterwards the table is read-only, and any vCPU thread may use it. Each device serializes its
 * accesses with its own lock.
 */
#ifndef KVMSCOPE_DEVICES_BUS_H
#define KVMSCOPE_DEVICES_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_space { BUS_PORT, BUS_MMIO };

/*
 * OFFSET and OFFSET + SIZE are within the device's range; SIZE is 1, 2, 4 or 8. Reads store to
 * DATA, which is all ones initially: bytes that the device does not decode stay so. Little-endian.
 * On any vCPU thread.
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
 * Adds DEVICE, which is not owned, at [start, start + size). -EEXIST if the range overlaps another
 * one, -ENOSPC if the table is full, -EINVAL for an empty or wrapping range. Before the guest runs.
 */
int bus_add(struct bus *bus, enum bus_space space, uint64_t start, uint64_t size,
	    bus_access *access, void *device);

/*
 * Passes the access to the device that owns all of [address, address + size). Without one, writes
 * are dropped, and the result is false; as in QEMU, reads of ports return all ones, which Linux's
 * probing of PCI needs (0xcf8 and 0xcfc, arch/x86/pci/direct.c), and reads of memory 0. Any vCPU
 * thread.
 */
bool bus_dispatch(const struct bus *bus, enum bus_space space, uint64_t address, bool write,
		  void *data, unsigned int size);

/* Raises a device's interrupt line; implemented by the machine. Any thread. */
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
