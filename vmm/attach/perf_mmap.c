// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/perf_mmap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/attach/perf_event.h"

#define PAGE 4096ull
/* Of the data: some seconds at 10 kHz. */
#define SIZE (64 * PAGE)

int perf_ring_open(struct perf_ring *ring, const struct perf_event_attr *attribute, pid_t tid)
{
	void *mapping;

	ring->fd = perf_event_open_thread(attribute, tid);
	if (ring->fd < 0)
		return ring->fd;
	mapping = mmap(NULL, PAGE + SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (mapping == MAP_FAILED) {
		int error = -errno;

		close(ring->fd);
		return error;
	}
	ring->page = mapping;
	ring->size = SIZE;
	ring->tail = 0;
	return 0;
}

/* Bytes at POSITION, which counts on and on. */
static void copy_out(const struct perf_ring *ring, uint64_t position, void *to, size_t size)
{
	const uint8_t *data = (const uint8_t *)ring->page + PAGE;
	uint64_t offset = position & (ring->size - 1), first = ring->size - offset;

	if (first > size)
		first = size;
	memcpy(to, data + offset, first);
	memcpy((uint8_t *)to + first, data, size - first);
}

const struct perf_event_header *perf_ring_read(struct perf_ring *ring)
{
	uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	struct perf_event_header header;

	if (head - ring->tail < sizeof(header))
		return NULL;
	copy_out(ring, ring->tail, &header, sizeof(header));
	if (header.size < sizeof(header) || header.size > head - ring->tail) {
		ring->tail = head; /* the kernel writes no such record */
		return NULL;
	}
	copy_out(ring, ring->tail, ring->record, header.size);
	ring->tail += header.size;
	return (const struct perf_event_header *)ring->record;
}

void perf_ring_read_done(struct perf_ring *ring)
{
	__atomic_store_n(&ring->page->data_tail, ring->tail, __ATOMIC_RELEASE);
}

void perf_ring_close(struct perf_ring *ring)
{
	munmap(ring->page, PAGE + ring->size);
	close(ring->fd);
}
