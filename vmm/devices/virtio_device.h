/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of all virtio devices (virtio 1.2, sections 2 and 3): features, status, queues,
 * interrupts, and the transfer of notifications from vCPU threads to the device's thread. Only
 * version 1 drivers are supported.
 *
 * Threads: lock protects everything unless noted otherwise. The transport takes it on vCPU threads;
 * the device's operations run with it held. Reset takes it too, so after a driver has read back
 * status 0 none of its buffers is in use. interrupt_lock, taken last, keeps interrupt status and
 * line consistent, so that an acknowledgement never waits for a disk. With lock held, a device may
 * add watches to the event loop, but remove them only on the loop's thread.
 *
 * A driver that violates the protocol gets DEVICE_NEEDS_RESET and no service until it resets the
 * device. Violations are counted, and the first one is logged.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_DEVICE_H
#define KVMSCOPE_DEVICES_VIRTIO_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/bus.h"
#include "vmm/devices/event_loop.h"
#include "vmm/devices/virtio_queue.h"
#include "vmm/kvm/guest_ram.h"

#define VIRTIO_DEVICE_QUEUES_MAX 64

struct virtio_device;

struct virtio_device_operations {
	const char *name; /* for messages: "virtio-blk" */
	uint32_t id;      /* section 5 */
	/* QUEUE may have chains. On the loop's thread, lock held, the device live. */
	void (*notify)(struct virtio_device *device, unsigned int queue);
	/* Drop chains and the driver's state. Lock held, any thread. May be NULL. */
	void (*reset)(struct virtio_device *device);
	/* After a reset, for work of the loop's thread. Lock held. May be NULL. */
	void (*was_reset)(struct virtio_device *device);
	/* Release everything that is not virtio_device's, and free the device. Lock not held;
	 * notify() is not called any longer. Works on partly created devices. */
	void (*destroy)(struct virtio_device *device);
};

/* The first member of each device. */
struct virtio_device {
	const struct virtio_device_operations *operations;
	const struct memory *memory;
	struct event_loop *loop;

	pthread_mutex_t lock;
	uint64_t features;                            /* offered; fixed */
	uint64_t driver_features;                     /* accepted */
	uint32_t features_page, driver_features_page; /* selected 32 bits of them */
	uint32_t queue_selected;
	uint8_t status;
	const void *config; /* of the device, constant while drivers run; config_size bytes */
	size_t config_size;
	struct virtio_queue *queues; /* owned, queue_count of them */
	unsigned int queue_count;

	pthread_mutex_t interrupt_lock;
	uint32_t interrupt_status; /* guarded by interrupt_lock */
	struct irq_line line;

	int notify_fd;             /* eventfd, owned; the loop watches it */
	_Atomic uint64_t notified; /* a bit for each queue */
	_Atomic uint64_t faults;   /* number of protocol violations */
};

struct virtio_device_options {
	const struct virtio_device_operations *operations;
	const struct memory *memory; /* must outlive the device, as must LOOP */
	struct event_loop *loop;
	struct irq_line line; /* level */
	uint64_t features;    /* of the device; those of transport and queue are added */
	unsigned int queue_count;
	uint32_t queue_size; /* maximum for drivers: a power of two up to VIRTIO_QUEUE_SIZE_MAX */
	const void *config;
	size_t config_size;
};

/* Fills the common part. -ENOMEM, or the errors of eventfd(2) and the event loop. After a
 * failure, virtio_device_destroy() is still required. */
int virtio_device_init(struct virtio_device *device, const struct virtio_device_options *options);

/* Stops the device, then calls its destroy(). Not on the loop's thread; no vCPU runs. NULL is a
 * no-op. */
void virtio_device_destroy(struct virtio_device *device);

/* For destroy() operations: releases the common part. */
void virtio_device_release(struct virtio_device *device);

/* Resets the device as the driver would. No vCPU runs. Not on the loop's thread. */
void virtio_device_reset(struct virtio_device *device);

/* For tests: number of protocol violations. Any thread. */
uint64_t virtio_device_faults(struct virtio_device *device);

/* For transports: QUEUE was notified. Takes no lock. Any thread. */
void virtio_device_notify(struct virtio_device *device, unsigned int queue);

/* For transports, lock held: the driver wrote the status (section 2.1); 0 resets. */
void virtio_device_set_status(struct virtio_device *device, uint8_t status);
/* For transports, lock held: the driver changed QUEUE's readiness. */
void virtio_device_set_queue_ready(struct virtio_device *device, unsigned int queue, bool ready);
/* For transports, without lock. */
uint32_t virtio_device_interrupt_status(struct virtio_device *device);
void virtio_device_acknowledge(struct virtio_device *device, uint32_t interrupts);

/* For devices, all with lock held. */

bool virtio_device_negotiated(const struct virtio_device *device, unsigned int feature);
/* As virtio_queue_pop(), but false also for a queue that is not ready or a device that is not
 * live; handles violations. */
bool virtio_device_pop(struct virtio_device *device, unsigned int queue,
		       struct virtio_chain *chain);
void virtio_device_push(struct virtio_device *device, unsigned int queue,
			const struct virtio_chain *chain, uint32_t written);
/* Raises the interrupt if the driver requests one for the chains pushed to QUEUE. */
void virtio_device_interrupt(struct virtio_device *device, unsigned int queue);
/* Records a protocol violation; REASON is for the log. */
void virtio_device_fault(struct virtio_device *device, const char *reason);

#endif
