/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pvpanic, the port with which a guest reports a kernel panic: QEMU docs/specs/pvpanic. Linux has a
 * driver (drivers/misc/pvpanic; in Debian the module pvpanic-mmio), which udev loads for ACPI's
 * QEMU0001. Other kernels write the byte PVPANIC_PANICKED themselves.
 */
#ifndef KVMSCOPE_DEVICES_PVPANIC_H
#define KVMSCOPE_DEVICES_PVPANIC_H

#include <stdbool.h>

#include "vmm/boot/acpi.h"
#include "vmm/devices/bus.h"

/* Bits of the port: reads return the supported ones, writes report an event. */
#define PVPANIC_PANICKED     0x01 /* the kernel panicked; it will halt, reboot or end */
#define PVPANIC_CRASH_LOADED 0x02 /* it panicked, and continues with its crash kernel */

struct pvpanic {
	/* For each report, on that vCPU's thread. May be NULL. */
	void (*panic)(void *context, bool crash_kernel);
	void *context;
};

/* Adds the port (ACPI_PVPANIC_PORT) to BUS; DEVICE must live as long. The errors of bus_add(). */
int pvpanic_add(struct pvpanic *device, struct bus *bus);

#endif
