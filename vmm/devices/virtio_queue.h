/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's side of a split virtqueue (virtio 1.2, section 2.7), with indirect descriptors and
 * event indexes if negotiated.
 *
 * The driver is not trusted. Only virtio_queue_pop() reads descriptors, each field once. It returns
 * a chain only if it is shorter than the queue (and therefore acyclic), has known flags, readable
 * before writable buffers, and all buffers wholly inside guest RAM. Bytes in buffers may change at
 * any time: copy them before checking.
 *
 * Not thread-safe: the device's lock serializes.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_QUEUE_H
#define KVMSCOPE_DEVICES_VIRTIO_QUEUE_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "vmm/kvm/guest_ram.h"

/* Number of descriptors, a power of two; section 2.7 allows 32768. */
#define VIRTIO_QUEUE_SIZE_MAX 256

struct virtio_queue {
	const struct memory *memory;
	uint32_t size_max; /* at most VIRTIO_QUEUE_SIZE_MAX */
	/* Set by the driver through the transport; constant while ready. */
	uint32_t size;
	uint64_t descriptors_gpa, driver_gpa, device_gpa;
	bool event_index, indirect; /* negotiated */
	bool ready;
	/* Valid while ready: guest memory, read and written atomically. */
	struct vring_desc *descriptors;
	struct vring_avail *available;
	struct vring_used *used;
	uint16_t next_available; /* index of the next chain to pop */
	uint16_t next_used;
	uint16_t signalled_used; /* next_used at the last check for a requested interrupt */
};

/* Buffers of one direction, consumed from the front. The chain owns the array. */
struct virtio_buffers {
	struct iovec *vectors;
	unsigned int count;
	uint64_t size; /* bytes in all of them */
};

/* Must not be copied: the buffers point into it. */
struct virtio_chain {
	uint16_t head;
	struct virtio_buffers readable, writable;
	struct iovec vectors[VIRTIO_QUEUE_SIZE_MAX];
};

/* The driver has set size and addresses and marks the queue as ready. -EINVAL or -EFAULT with a
 * message if they are invalid; the queue then stays not ready. */
int virtio_queue_enable(struct virtio_queue *queue);

/* The state after the transport's reset; keeps memory and size_max. */
void virtio_queue_reset(struct virtio_queue *queue);

/*
 * Pops the next chain: 1, or 0 if there is none, in which case the driver will notify for the next
 * one. -EPROTO with a message for an invalid chain or index: the device must then stop until it is
 * reset. The queue must be ready.
 */
int virtio_queue_pop(struct virtio_queue *queue, struct virtio_chain *chain);

/* Returns the last popped chain to the queue; it will be popped again. */
void virtio_queue_undo_pop(struct virtio_queue *queue);

/* Returns the chain to the driver with WRITTEN bytes in its writable buffers. */
void virtio_queue_push(struct virtio_queue *queue, const struct virtio_chain *chain,
		       uint32_t written);

/* True if the driver requests an interrupt for the chains pushed since the last call. */
bool virtio_queue_wants_interrupt(struct virtio_queue *queue);

/* Each copies and consumes up to SIZE bytes, and returns their number. */
size_t virtio_buffers_read(struct virtio_buffers *buffers, void *to, size_t size);
size_t virtio_buffers_write(struct virtio_buffers *buffers, const void *from, size_t size);

/* Consumes up to SIZE bytes. */
void virtio_buffers_advance(struct virtio_buffers *buffers, uint64_t size);

/* Removes the last byte and returns it; NULL if there is none. */
uint8_t *virtio_buffers_cut_last(struct virtio_buffers *buffers);

#endif
