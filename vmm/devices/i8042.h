/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyboard controller's reset line. Ports 0x60 and 0x64 read 0 (no data, ready for a command),
 * so that Linux's probing (drivers/input/serio/i8042.c) finds no keyboard without a timeout.
 * Command 0xFE pulses the reset line (reboot=k).
 *
 * Port 0x61 (gate and output of PIT channel 2, with which Linux calibrates the TSC) is not here:
 * the in-kernel PIT handles it if created with KVM_PIT_SPEAKER_DUMMY.
 */
#ifndef KVMSCOPE_DEVICES_I8042_H
#define KVMSCOPE_DEVICES_I8042_H

#include "vmm/devices/bus.h"

struct i8042 {
	/* The guest requested a reset. On that vCPU's thread. */
	void (*reset)(void *context);
	void *context;
};

/* Adds ports 0x60 and 0x64 to BUS; DEVICE must live as long. The errors of bus_add(). */
int i8042_add(struct i8042 *device, struct bus *bus);

#endif
