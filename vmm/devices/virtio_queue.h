/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's side of a split virtqueue (virtio 1.2, section 2.7), with
 * indirect descriptors and event indexes where the driver took them.
 *
 * The driver is hostile: virtio_queue_pop() is the one place where
 * descriptors are read. Each field is read once, and a chain comes out only if
 * it is shorter than the queue, acyclic by that, of known flags, readable
 * before writable, and each of its buffers wholly inside guest RAM. The bytes
 * of the buffers may change at any time: copy what is judged.
 *
 * Not safe on several threads at once: the device's lock serializes.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_QUEUE_H
#define KVMSCOPE_DEVICES_VIRTIO_QUEUE_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "vmm/kvm/guest_ram.h"

/* Descriptors, a power of two; section 2.7 allows 32768. */
#define VIRTIO_QUEUE_SIZE_MAX 256

struct virtio_queue {
	const struct memory *memory;
	uint32_t size_max; /* at most VIRTIO_QUEUE_SIZE_MAX */
	/* As the driver sets them through the transport; fixed while ready. */
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
	uint16_t signalled_used; /* next_used when the driver's wish for an interrupt was last
				    looked at */
};

/* Buffers of one direction, consumed from the front. The arrays are the chain's. */
struct virtio_buffers {
	struct iovec *vectors;
	unsigned int count;
	uint64_t size; /* bytes in all of them */
};

/* Not to be copied: the buffers point into it. */
struct virtio_chain {
	uint16_t head;
	struct virtio_buffers readable, writable;
	struct iovec vectors[VIRTIO_QUEUE_SIZE_MAX];
};

/*
 * The driver has set size and addresses and says that the queue is ready:
 * -EINVAL or -EFAULT with a message if they are bad, and it stays not ready.
 */
int virtio_queue_enable(struct virtio_queue *queue);

/* Back to how the transport's reset leaves a queue, keeping memory and size_max. */
void virtio_queue_reset(struct virtio_queue *queue);

/*
 * Takes the next chain: 1, or 0 if there is none, in which case the driver
 * will notify when there is. -EPROTO with a message for a chain or an index
 * that no driver may make: the device is then to stop until it is reset. The
 * queue must be ready.
 */
int virtio_queue_pop(struct virtio_queue *queue, struct virtio_chain *chain);

/* Gives the chain popped last back untouched; it will be popped again. */
void virtio_queue_undo_pop(struct virtio_queue *queue);

/* Returns the chain to the driver with WRITTEN bytes in its writable buffers. */
void virtio_queue_push(struct virtio_queue *queue, const struct virtio_chain *chain,
		       uint32_t written);

/* Does the driver want an interrupt for what was pushed since the last call? */
bool virtio_queue_wants_interrupt(struct virtio_queue *queue);

/* Each copies at most SIZE bytes, consumes them, and returns how many there were. */
size_t virtio_buffers_read(struct virtio_buffers *buffers, void *to, size_t size);
size_t virtio_buffers_write(struct virtio_buffers *buffers, const void *from, size_t size);

/* Consumes SIZE bytes, at most all of them. */
void virtio_buffers_advance(struct virtio_buffers *buffers, uint64_t size);

/* Takes the last byte off; NULL if there is none. */
uint8_t *virtio_buffers_cut_last(struct virtio_buffers *buffers);

#endif
