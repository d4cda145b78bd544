/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of one or two ports: keyboard controller, debug exit, pvpanic. */
#ifndef KVMSCOPE_DEVICES_PORT_DEVICES_H
#define KVMSCOPE_DEVICES_PORT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/boot/acpi.h"
#include "vmm/devices/bus.h"

/*
 * The keyboard controller's reset line. Ports 0x60 and 0x64 read 0 (no data, ready for a command),
 * so that Linux's probing (drivers/input/serio/i8042.c) finds no keyboard without a timeout.
 * Command 0xFE pulses the reset line (reboot=k).
 *
 * Port 0x61 (gate and output of PIT channel 2, with which Linux calibrates the TSC) is not here:
 * the in-kernel PIT handles it if created with KVM_PIT_SPEAKER_DUMMY.
 */
struct i8042 {
	/* The guest requested a reset. On that vCPU's thread. */
	void (*reset)(void *context);
	void *context;
};

/* Adds ports 0x60 and 0x64 to BUS; DEVICE must live as long. The errors of bus_add(). */
int i8042_add(struct i8042 *device, struct bus *bus);

/* The debug-exit port: a guest ends by writing its exit value to port 0xf4, as with QEMU's
 * isa-debug-exit, except that the value is not changed. */
#define DEBUG_EXIT_PORT 0xf4

struct debug_exit {
	/* VALUE is the written value, 1, 2 or 4 bytes wide. On that vCPU's thread. */
	void (*exit)(void *context, uint32_t value);
	void *context;
};

/* Adds the port to BUS; DEVICE must live as long. Reads return 0. The errors of bus_add(). */
int debug_exit_add(struct debug_exit *device, struct bus *bus);

/*
 * pvpanic, the port with which a guest reports a kernel panic: QEMU docs/specs/pvpanic. Linux has a
 * driver (drivers/misc/pvpanic; in Debian the module pvpanic-mmio), which udev loads for ACPI's
 * QEMU0001. Other kernels write the byte PVPANIC_PANICKED themselves.
 */
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
