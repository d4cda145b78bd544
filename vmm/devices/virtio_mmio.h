/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MMIO transport, version 2 (virtio 1.2, section 4.2): the registers by
 * which a driver finds, sets up and notifies a virtio device. Registers take
 * aligned 32-bit accesses only, the device's configuration behind them any
 * width; whatever else is tried reads 0 or is dropped. There is no legacy
 * interface, no shared memory region, no VIRTIO_F_RING_RESET.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_MMIO_H
#define KVMSCOPE_DEVICES_VIRTIO_MMIO_H

#include "vmm/devices/bus.h"
#include "vmm/devices/virtio_device.h"

/* Bytes of a device's range: 0x100 of registers, then configuration. */
#define VIRTIO_MMIO_SIZE 0x200

/* Puts DEVICE on BUS at GPA, where it must live as long as vCPUs run. The errors of bus_add(). */
int virtio_mmio_add(struct virtio_device *device, struct bus *bus, uint64_t gpa);

#endif
