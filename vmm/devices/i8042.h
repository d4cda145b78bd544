/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyboard controller, of which only the reset line is there: ports 0x60
 * and 0x64 read 0 (no data, ready for a command), so that Linux's probing
 * (drivers/input/serio/i8042.c) finds no keyboard without waiting for one,
 * and command 0xFE pulses the reset line (reboot=k).
 *
 * Port 0x61 (PIT channel 2's gate and output, which Linux calibrates the TSC
 * by) is not here: the in-kernel PIT answers it when it is made with
 * KVM_PIT_SPEAKER_DUMMY.
 */
#ifndef KVMSCOPE_DEVICES_I8042_H
#define KVMSCOPE_DEVICES_I8042_H

#include "vmm/devices/bus.h"

struct i8042 {
	/* The guest asked for a reset. On the vCPU's thread that did. */
	void (*reset)(void *context);
	void *context;
};

/* Puts ports 0x60 and 0x64 on BUS; DEVICE must live as long. The errors of bus_add(). */
int i8042_add(struct i8042 *device, struct bus *bus);

#endif
