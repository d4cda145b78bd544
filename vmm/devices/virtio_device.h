/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all virtio devices have in common (virtio 1.2, sections 2 and 3):
 * features, status, queues, interrupts, and the way from a notification on a
 * vCPU's thread to the device's thread. Only version 1 drivers are served.
 *
 * Threads: lock guards everything but what is named otherwise. The transport
 * takes it on vCPU threads; the device's operations run with it held. Reset
 * takes it too, so once a driver has read back status 0 no buffer of it is in
 * use. interrupt_lock, taken last, keeps the interrupt status and the line in
 * step, so that acknowledging never waits for a disk. While it holds lock a
 * device may add watches to the event loop, but remove them only on the
 * loop's thread.
 *
 * A driver that breaks the rules gets DEVICE_NEEDS_RESET and is served no more
 * until it resets the device; that is counted, the first one is logged.
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
	/* Forget chains and what the driver said. Lock held, any thread. May be NULL. */
	void (*reset)(struct virtio_device *device);
	/* After a reset, for what only the loop's thread may do. Lock held. May be NULL. */
	void (*was_reset)(struct virtio_device *device);
	/*
	 * Release all that is not virtio_device's and free the device. Lock not
	 * held, no notify() any more. Works on half-made devices.
	 */
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
	const void *config; /* of the device, fixed while drivers run; config_size bytes */
	size_t config_size;
	struct virtio_queue *queues; /* owned, queue_count of them */
	unsigned int queue_count;

	pthread_mutex_t interrupt_lock;
	uint32_t interrupt_status; /* guarded by interrupt_lock */
	struct irq_line line;

	int notify_fd;             /* eventfd, owned; the loop watches it */
	_Atomic uint64_t notified; /* a bit per queue */
	_Atomic uint64_t faults;   /* broken rules so far */
};

struct virtio_device_options {
	const struct virtio_device_operations *operations;
	const struct memory *memory; /* must live as long as the device, as LOOP */
	struct event_loop *loop;
	struct irq_line line; /* level */
	uint64_t features;    /* of the device; the transport's and the queue's are added */
	unsigned int queue_count;
	uint32_t queue_size; /* what drivers may choose up to: a power of two up to
				VIRTIO_QUEUE_SIZE_MAX */
	const void *config;
	size_t config_size;
};

/*
 * Fills the part that is common; -ENOMEM, or the errors of eventfd(2) and the
 * event loop. On failure virtio_device_destroy() is still to be called.
 */
int virtio_device_init(struct virtio_device *device, const struct virtio_device_options *options);

/* Stops the device, then calls its destroy(). Not on the loop's thread; no vCPU runs; works on
 * NULL. */
void virtio_device_destroy(struct virtio_device *device);

/* For destroy() operations: releases what virtio_device_init() made. */
void virtio_device_release(struct virtio_device *device);

/* The machine is reset: as if the driver did it. No vCPU runs. Not on the loop's thread. */
void virtio_device_reset(struct virtio_device *device);

/* For tests: how often drivers have broken the rules. Any thread. */
uint64_t virtio_device_faults(struct virtio_device *device);

/* For transports: QUEUE was notified. Takes no lock. Any thread. */
void virtio_device_notify(struct virtio_device *device, unsigned int queue);

/* For transports, lock held: the driver wrote its status (section 2.1); 0 resets. */
void virtio_device_set_status(struct virtio_device *device, uint8_t status);
/* For transports, lock held: the driver says that QUEUE is ready, or no longer. */
void virtio_device_set_queue_ready(struct virtio_device *device, unsigned int queue, bool ready);
/* For transports; no lock needed. */
uint32_t virtio_device_interrupt_status(struct virtio_device *device);
void virtio_device_acknowledge(struct virtio_device *device, uint32_t interrupts);

/* For devices, all with lock held. */

/* Has a driver set the device going, and kept to the rules since? */
bool virtio_device_live(const struct virtio_device *device);
bool virtio_device_negotiated(const struct virtio_device *device, unsigned int feature);
/* As virtio_queue_pop(), but 0 also for a queue that is not ready or a device not live; faults are
 * dealt with. */
bool virtio_device_pop(struct virtio_device *device, unsigned int queue,
		       struct virtio_chain *chain);
void virtio_device_push(struct virtio_device *device, unsigned int queue,
			const struct virtio_chain *chain, uint32_t written);
/* Raises the interrupt if the driver wants one for what was pushed to QUEUE. */
void virtio_device_interrupt(struct virtio_device *device, unsigned int queue);
/* The driver broke a rule: REASON says which. */
void virtio_device_fault(struct virtio_device *device, const char *reason);

#endif
