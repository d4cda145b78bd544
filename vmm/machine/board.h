/* SPDX-License-Identifier: Apache-2.0 */
/* The board: all devices on their bus, and the event loop that serves them. Created before the
 * vCPUs start, destroyed after they have ended. */
#ifndef KVMSCOPE_MACHINE_BOARD_H
#define KVMSCOPE_MACHINE_BOARD_H

#include "vmm/boot/acpi.h"
#include "vmm/devices/acpi_pm.h"
#include "vmm/devices/bus.h"
#include "vmm/devices/event_loop.h"
#include "vmm/devices/port_devices.h"
#include "vmm/devices/rtc.h"
#include "vmm/devices/serial.h"
#include "vmm/devices/virtio_device.h"
#include "vmm/kvm/vm.h"
#include "vmm/machine/machine.h"

/* Virtio devices are in the hole below 4 GiB; each has a page and an interrupt line of the
 * IOAPIC. */
#define BOARD_VIRTIO_START  0xd0000000ull
#define BOARD_VIRTIO_STRIDE 0x1000ull
#define BOARD_VIRTIO_GSI    16
#define BOARD_VIRTIO_MAX    8

/* Requests of the guest to the machine, on the vCPU's thread. */
struct board_events {
	void (*power_off)(void *context);
	void (*reset)(void *context);
	void (*debug_exit)(void *context, uint32_t value);
	void *context;
	void (*panic)(void *context, bool crash_kernel); /* may be NULL */
	void *panic_context;
};

struct board {
	struct bus bus;
	struct event_loop *loop;
	struct serial *serial;
	struct rtc rtc;
	struct i8042 i8042;
	struct acpi_pm acpi_pm;
	struct debug_exit debug_exit;
	struct pvpanic pvpanic;
	struct virtio_device *virtio[BOARD_VIRTIO_MAX];
	struct acpi_virtio_device virtio_slots[BOARD_VIRTIO_MAX]; /* for the DSDT */
	size_t virtio_count;
	bool has_registers; /* rtc and acpi_pm are initialized */
};

/* BOARD must not move; VM must outlive it. On an error everything is destroyed again. */
int board_create(struct board *board, struct vm *vm, const struct machine_options *options,
		 const struct board_events *events);

/* Resets every device, except for the RTC's RAM. No vCPU runs. */
void board_reset(struct board *board);

/* Writes out pending console output. After the vCPUs have ended. Works on a zeroed board. */
void board_destroy(struct board *board);

#endif
