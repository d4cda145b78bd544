/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's side of virtio for tests: guest memory, a bus with one device behind virtio-mmio,
 * and queues in that memory. It follows the protocol unless a test writes to its structures. One
 * thread.
 */
#ifndef KVMSCOPE_TESTS_UNIT_VIRTIO_DRIVER_H
#define KVMSCOPE_TESTS_UNIT_VIRTIO_DRIVER_H

#include <linux/virtio_ring.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/bus.h"
#include "vmm/devices/event_loop.h"
#include "vmm/devices/virtio_device.h"
#include "vmm/kvm/guest_ram.h"

#define DRIVER_MMIO        0xd0000000ull
#define DRIVER_MEMORY_SIZE (4ull << 20)
#define DRIVER_QUEUE_SIZE  16
#define DRIVER_QUEUES_MAX  8

/* The tests' buffers are between here and the end of memory, the queues below. */
#define DRIVER_BUFFERS 0x100000ull

struct driver_queue {
	struct vring_desc *descriptors;
	struct vring_avail *available;
	struct vring_used *used;
	uint16_t seen; /* used entries that were consumed */
};

struct driver {
	struct memory memory;
	struct bus bus;
	struct event_loop *loop;
	struct virtio_device *device;
	struct driver_queue queues[DRIVER_QUEUES_MAX];
	atomic_bool line;
};

/* Creates memory, loop and bus. The line of the device to be created is driver_line(). */
bool driver_init(struct driver *driver);
struct irq_line driver_line(struct driver *driver);
/* The driver takes ownership of the device. */
bool driver_attach(struct driver *driver, struct virtio_device *device);
void driver_end(struct driver *driver);

uint32_t driver_read(struct driver *driver, uint64_t offset);
void driver_write(struct driver *driver, uint64_t offset, uint32_t value);
void *driver_memory(struct driver *driver, uint64_t gpa);

/* The steps of section 3.1.1: up to FEATURES_OK, then each queue, then DRIVER_OK. */
bool driver_negotiate(struct driver *driver, uint64_t features);
bool driver_setup_queue(struct driver *driver, unsigned int queue);
void driver_go(struct driver *driver);
/* All three steps, with all offered features and QUEUES queues. */
bool driver_start(struct driver *driver, unsigned int queues);

/* Addresses of the queue's parts in guest memory. */
uint64_t driver_descriptors_gpa(unsigned int queue);
uint64_t driver_available_gpa(unsigned int queue);
uint64_t driver_used_gpa(unsigned int queue);

/* Sets descriptor INDEX; FLAGS of VRING_DESC_F_*. */
void driver_describe(struct driver *driver, unsigned int queue, uint16_t index, uint64_t gpa,
		     uint32_t size, uint16_t flags, uint16_t next);
/* Makes the chain at HEAD available, without and with notification. */
void driver_offer(struct driver *driver, unsigned int queue, uint16_t head);
void driver_submit(struct driver *driver, unsigned int queue, uint16_t head);

/* The device's used index. */
uint16_t driver_used_index(struct driver *driver, unsigned int queue);
/*
 * Waits until the device has used another chain of QUEUE, and copies its entry to *ELEMENT. Returns
 * false if the device requests a reset, or after ten seconds.
 */
bool driver_wait_used(struct driver *driver, unsigned int queue, struct vring_used_elem *element);
/* Waits until the device requests a reset. Returns false after ten seconds. */
bool driver_wait_needs_reset(struct driver *driver);
/* Returns after the loop has handled all earlier notifications. */
void driver_settle(struct driver *driver);
bool driver_needs_reset(struct driver *driver);

#endif
