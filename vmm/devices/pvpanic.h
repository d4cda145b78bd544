/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pvpanic, the port by which a guest says that its kernel panics: QEMU
 * docs/specs/pvpanic. Linux has a driver (drivers/misc/pvpanic, in Debian the
 * module pvpanic-mmio) that udev loads for ACPI's QEMU0001; a kernel without
 * one writes the byte PVPANIC_PANICKED.
 */
#ifndef KVMSCOPE_DEVICES_PVPANIC_H
#define KVMSCOPE_DEVICES_PVPANIC_H

#include <stdbool.h>

#include "vmm/boot/acpi.h"
#include "vmm/devices/bus.h"

/* Bits of the port: read, those that are understood; written, what happened. */
#define PVPANIC_PANICKED     0x01 /* the kernel panicked; it will halt, or reboot, or end */
#define PVPANIC_CRASH_LOADED 0x02 /* it panicked, and goes on with its crash kernel */

struct pvpanic {
	/* As often as the guest says so. On the vCPU's thread that did. NULL: nobody listens. */
	void (*panic)(void *context, bool crash_kernel);
	void *context;
};

/* Puts the port (ACPI_PVPANIC_PORT) on BUS; DEVICE must live as long. The errors of bus_add(). */
int pvpanic_add(struct pvpanic *device, struct bus *bus);

#endif
