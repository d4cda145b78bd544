/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor chain walker. Input: struct header, then guest memory from GPA 0. Every chain that
 * the walker returns must be inside that memory.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/devices/virtio_queue.h"

struct header {
	uint64_t descriptors_gpa, driver_gpa, device_gpa;
	uint16_t size;
	uint8_t event_index, indirect;
	uint32_t unused;
};

#define RAM_SIZE (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const struct memory *memory, const struct virtio_buffers *buffers)
{
	const uint8_t *start = memory->regions[0].hva, *end = start + memory->regions[0].size;
	uint64_t total = 0;

	for (unsigned int i = 0; i < buffers->count; i++) {
		const uint8_t *first = buffers->vectors[i].iov_base;
		size_t length = buffers->vectors[i].iov_len;

		if (first < start || !length || length > (size_t)(end - first))
			abort();
		total += length;
	}
	if (total != buffers->size)
		abort();
}

static void consume(struct virtio_chain *chain)
{
	uint8_t bytes[100];

	virtio_buffers_cut_last(&chain->writable);
	virtio_buffers_read(&chain->readable, bytes, sizeof(bytes));
	virtio_buffers_advance(&chain->readable, UINT64_MAX);
	if (chain->readable.size || chain->readable.count)
		abort();
}

static void pop_all(struct virtio_queue *queue)
{
	static struct virtio_chain chain;

	for (int i = 0; i < 1000 && virtio_queue_pop(queue, &chain) > 0; i++) {
		if (chain.readable.count + chain.writable.count > queue->size)
			abort();
		touch(queue->memory, &chain.readable);
		touch(queue->memory, &chain.writable);
		consume(&chain);
		virtio_queue_push(queue, &chain, 1);
		virtio_queue_wants_interrupt(queue);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t ram[RAM_SIZE] __attribute__((aligned(4096)));
	struct memory memory = { .regions = { { .size = RAM_SIZE, .hva = ram } },
				 .region_count = 1 };
	struct header header;
	struct virtio_queue queue = { .memory = &memory, .size_max = VIRTIO_QUEUE_SIZE_MAX };

	if (size < sizeof(header) || size - sizeof(header) > RAM_SIZE)
		return 0;
	memcpy(&header, data, sizeof(header));
	memset(ram, 0, sizeof(ram));
	memcpy(ram, data + sizeof(header), size - sizeof(header));
	queue.size = header.size;
	queue.descriptors_gpa = header.descriptors_gpa;
	queue.driver_gpa = header.driver_gpa;
	queue.device_gpa = header.device_gpa;
	queue.event_index = header.event_index & 1;
	queue.indirect = header.indirect & 1;
	if (!virtio_queue_enable(&queue))
		pop_all(&queue);
	return 0;
}
