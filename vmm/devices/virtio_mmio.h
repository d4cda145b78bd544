/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MMIO transport, version 2 (virtio 1.2, section 4.2): the registers with which a driver
 * detects, configures and notifies a virtio device. Registers allow aligned 32-bit accesses only;
 * the device's configuration after them allows any width. Other reads return 0, and other writes
 * are dropped. No legacy interface, no shared memory region, no VIRTIO_F_RING_RESET.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_MMIO_H
#define KVMSCOPE_DEVICES_VIRTIO_MMIO_H

#include "vmm/devices/bus.h"
#include "vmm/devices/virtio_device.h"

/* Size of a device's range: 0x100 bytes of registers, then the configuration. */
#define VIRTIO_MMIO_SIZE 0x200

/* Adds DEVICE to BUS at GPA. DEVICE must outlive the vCPUs. The errors of bus_add(). */
int virtio_mmio_add(struct virtio_device *device, struct bus *bus, uint64_t gpa);

#endif
