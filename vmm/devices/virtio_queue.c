/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "shared/error.h"

#define KNOWN_FLAGS (VRING_DESC_F_NEXT | VRING_DESC_F_WRITE | VRING_DESC_F_INDIRECT)

/* Section 2.7.5: a chain has at most 2^32 bytes in all buffers. */
#define CHAIN_BYTES_MAX (1ull << 32)

static int map_part(const struct virtio_queue *queue, const char *what, uint64_t gpa, uint64_t size,
		    uint64_t alignment, void **pointer)
{
	*pointer = memory_pointer(queue->memory, gpa, size);
	if (gpa % alignment || !*pointer)
		return error_set(-EFAULT,
				 "%s at %#" PRIx64 " of %" PRIu64
				 " bytes is not aligned or not in RAM",
				 what, gpa, size);
	return 0;
}

/* Sizes and alignments of section 2.7, including the event fields. */
static int map_parts(struct virtio_queue *queue)
{
	uint64_t size = queue->size;
	void *descriptors, *available, *used;
	int error;

	error = map_part(queue, "descriptor table", queue->descriptors_gpa, 16 * size, 16,
			 &descriptors);
	if (!error)
		error = map_part(queue, "available ring", queue->driver_gpa, 6 + 2 * size, 2,
				 &available);
	if (!error)
		error = map_part(queue, "used ring", queue->device_gpa, 6 + 8 * size, 4, &used);
	if (error)
		return error;
	queue->descriptors = descriptors;
	queue->available = available;
	queue->used = used;
	return 0;
}

int virtio_queue_enable(struct virtio_queue *queue)
{
	uint32_t size = queue->size;
	int error;

	if (!size || size > queue->size_max || (size & (size - 1)))
		return error_set(-EINVAL,
				 "queue size %" PRIu32 " is not a power of two up to %" PRIu32,
				 size, queue->size_max);
	error = map_parts(queue);
	if (error)
		return error;
	queue->next_available = 0;
	queue->next_used = 0;
	queue->signalled_used = 0;
	queue->ready = true;
	return 0;
}

void virtio_queue_reset(struct virtio_queue *queue)
{
	*queue = (struct virtio_queue){ .memory = queue->memory, .size_max = queue->size_max };
}

/*
 * After the used ring: the available index for which the device requests a notification. A full
 * barrier (an exchange, which ThreadSanitizer supports), so that the driver sees it before the
 * available index is read again.
 */
static void set_available_event(struct virtio_queue *queue, uint16_t index)
{
	uint16_t *event = (uint16_t *)&queue->used->ring[queue->size];

	__atomic_exchange_n(event, index, __ATOMIC_SEQ_CST);
}

static uint16_t available_index(const struct virtio_queue *queue)
{
	return __atomic_load_n(&queue->available->idx, __ATOMIC_SEQ_CST);
}

/* Number of available chains. If there seem to be none, requests a notification for the next one
 * and checks again: the driver may have added one before it saw the request. */
static uint16_t chains_waiting(struct virtio_queue *queue)
{
	uint16_t waiting = (uint16_t)(available_index(queue) - queue->next_available);

	if (waiting || !queue->event_index)
		return waiting;
	set_available_event(queue, queue->next_available);
	return (uint16_t)(available_index(queue) - queue->next_available);
}

/* A descriptor table: the queue's own, or an indirect one. */
struct table {
	const struct vring_desc *descriptors;
	uint32_t size;
	bool indirect; /* a flag, because a guest may use its queue's own table as an indirect one
			*/
};

/* Reads each field once: the guest may change it at any time. */
static struct vring_desc load_descriptor(const struct table *table, uint16_t index)
{
	const struct vring_desc *from = &table->descriptors[index];

	return (struct vring_desc){
		.addr = __atomic_load_n(&from->addr, __ATOMIC_RELAXED),
		.len = __atomic_load_n(&from->len, __ATOMIC_RELAXED),
		.flags = __atomic_load_n(&from->flags, __ATOMIC_RELAXED),
		.next = __atomic_load_n(&from->next, __ATOMIC_RELAXED),
	};
}

/* Section 2.7.5.3: an indirect descriptor ends the chain, and its table has only direct ones. */
static int enter_indirect(const struct virtio_queue *queue, const struct vring_desc *descriptor,
			  struct table *table)
{
	const struct vring_desc *descriptors;

	if (!queue->indirect || table->indirect)
		return error_set(-EPROTO, "an indirect descriptor that is not allowed");
	if (descriptor->flags & VRING_DESC_F_NEXT)
		return error_set(-EPROTO, "an indirect descriptor with a next one");
	if (!descriptor->len || descriptor->len % sizeof(struct vring_desc))
		return error_set(-EPROTO, "an indirect table of %" PRIu32 " bytes",
				 descriptor->len);
	if (descriptor->addr % __alignof__(struct vring_desc))
		return error_set(-EPROTO, "an indirect table at %#" PRIx64 ", not aligned",
				 (uint64_t)descriptor->addr);
	descriptors = memory_pointer(queue->memory, descriptor->addr, descriptor->len);
	if (!descriptors)
		return error_set(-EPROTO, "an indirect table at %#" PRIx64 " outside of RAM",
				 (uint64_t)descriptor->addr);
	*table = (struct table){ .descriptors = descriptors,
				 .size = descriptor->len / 16,
				 .indirect = true };
	return 0;
}

/* Empty buffers are legal and ignored. */
static int add_buffer(const struct virtio_queue *queue, const struct vring_desc *descriptor,
		      struct virtio_chain *chain)
{
	bool write = descriptor->flags & VRING_DESC_F_WRITE;
	struct virtio_buffers *buffers = write ? &chain->writable : &chain->readable;
	void *pointer = memory_pointer(queue->memory, descriptor->addr, descriptor->len);

	if (!pointer)
		return error_set(-EPROTO,
				 "a buffer at %#" PRIx64 " of %" PRIu32 " bytes outside of RAM",
				 (uint64_t)descriptor->addr, descriptor->len);
	if (!write && chain->writable.count)
		return error_set(-EPROTO, "a readable buffer after a writable one");
	if (chain->readable.size + chain->writable.size + descriptor->len > CHAIN_BYTES_MAX)
		return error_set(-EPROTO, "a chain of more than 4 GiB");
	if (!descriptor->len)
		return 0;
	if (write && !buffers->count)
		buffers->vectors = chain->vectors + chain->readable.count;
	buffers->vectors[buffers->count++] =
		(struct iovec){ .iov_base = pointer, .iov_len = descriptor->len };
	buffers->size += descriptor->len;
	return 0;
}

/* The only walk over descriptors. COUNT limits it to the queue's size, which ends cyclic chains
 * and bounds the number of vectors. */
static int walk(const struct virtio_queue *queue, uint16_t index, struct virtio_chain *chain)
{
	struct table table = { .descriptors = queue->descriptors, .size = queue->size };
	struct vring_desc descriptor;
	uint32_t count = 0;
	int error;

	do {
		if (index >= table.size)
			return error_set(-EPROTO, "descriptor %u of a table of %" PRIu32, index,
					 table.size);
		if (count++ == queue->size)
			return error_set(-EPROTO, "a chain longer than its queue of %" PRIu32,
					 queue->size);
		descriptor = load_descriptor(&table, index);
		if (descriptor.flags & ~KNOWN_FLAGS)
			return error_set(-EPROTO, "unknown descriptor flags %#x", descriptor.flags);
		if (descriptor.flags & VRING_DESC_F_INDIRECT) {
			error = enter_indirect(queue, &descriptor, &table);
			index = 0;
			descriptor.flags = VRING_DESC_F_NEXT;
			count--;
		} else {
			error = add_buffer(queue, &descriptor, chain);
			index = descriptor.next;
		}
		if (error)
			return error;
	} while (descriptor.flags & VRING_DESC_F_NEXT);
	return 0;
}

int virtio_queue_pop(struct virtio_queue *queue, struct virtio_chain *chain)
{
	uint16_t waiting = chains_waiting(queue);
	uint16_t head;
	int error;

	if (!waiting)
		return 0;
	if (waiting > queue->size)
		return error_set(-EPROTO, "the available index jumps by %u in a queue of %" PRIu32,
				 waiting, queue->size);
	head = __atomic_load_n(&queue->available->ring[queue->next_available % queue->size],
			       __ATOMIC_RELAXED);
	chain->head = head;
	chain->readable = (struct virtio_buffers){ .vectors = chain->vectors };
	chain->writable = (struct virtio_buffers){ .vectors = chain->vectors };
	error = walk(queue, head, chain);
	if (error)
		return error;
	queue->next_available++;
	return 1;
}

void virtio_queue_undo_pop(struct virtio_queue *queue)
{
	queue->next_available--;
}

void virtio_queue_push(struct virtio_queue *queue, const struct virtio_chain *chain,
		       uint32_t written)
{
	struct vring_used_elem *element = &queue->used->ring[queue->next_used % queue->size];

	__atomic_store_n(&element->id, chain->head, __ATOMIC_RELAXED);
	__atomic_store_n(&element->len, written, __ATOMIC_RELAXED);
	queue->next_used++;
	__atomic_store_n(&queue->used->idx, queue->next_used, __ATOMIC_RELEASE);
}

bool virtio_queue_wants_interrupt(struct virtio_queue *queue)
{
	uint16_t old = queue->signalled_used;

	queue->signalled_used = queue->next_used;
	if (old == queue->next_used)
		return false;
	/* The used index must be visible before the driver's request is read, section 2.7.7.1: a
	 * full barrier. */
	__atomic_exchange_n(&queue->used->idx, queue->next_used, __ATOMIC_SEQ_CST);
	if (queue->event_index) /* the driver's used_event is after the available ring */
		return vring_need_event(
			__atomic_load_n(&queue->available->ring[queue->size], __ATOMIC_SEQ_CST),
			queue->next_used, old);
	return !(__atomic_load_n(&queue->available->flags, __ATOMIC_SEQ_CST) &
		 VRING_AVAIL_F_NO_INTERRUPT);
}

void virtio_buffers_advance(struct virtio_buffers *buffers, uint64_t size)
{
	while (size && buffers->count) {
		struct iovec *first = buffers->vectors;
		size_t part = size < first->iov_len ? size : first->iov_len;

		first->iov_base = (uint8_t *)first->iov_base + part;
		first->iov_len -= part;
		buffers->size -= part;
		size -= part;
		if (!first->iov_len) {
			buffers->vectors++;
			buffers->count--;
		}
	}
}

static size_t copy(struct virtio_buffers *buffers, void *to, const void *from, size_t size)
{
	size_t done = 0;

	while (done < size && buffers->count) {
		struct iovec first = *buffers->vectors;
		size_t part = size - done < first.iov_len ? size - done : first.iov_len;

		if (to)
			memcpy((uint8_t *)to + done, first.iov_base, part);
		else
			memcpy(first.iov_base, (const uint8_t *)from + done, part);
		virtio_buffers_advance(buffers, part);
		done += part;
	}
	return done;
}

size_t virtio_buffers_read(struct virtio_buffers *buffers, void *to, size_t size)
{
	return copy(buffers, to, NULL, size);
}

size_t virtio_buffers_write(struct virtio_buffers *buffers, const void *from, size_t size)
{
	return copy(buffers, NULL, from, size);
}

uint8_t *virtio_buffers_cut_last(struct virtio_buffers *buffers)
{
	struct iovec *last;
	uint8_t *byte;

	if (!buffers->count)
		return NULL;
	last = &buffers->vectors[buffers->count - 1];
	last->iov_len--;
	byte = (uint8_t *)last->iov_base + last->iov_len;
	if (!last->iov_len)
		buffers->count--;
	buffers->size--;
	return byte;
}
