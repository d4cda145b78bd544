// SPDX-License-Identifier: Apache-2.0
/*
 * The ring's reader on arbitrary memory: the first 16 bytes of the input are
 * data_head and data_tail, the rest is data from the start on; in the end the
 * whole input is a header for ring_attach().
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/ring_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte of a record must be readable. */
static uint64_t sum_bytes(const struct ring_record *record)
{
	uint64_t sum = record->type + record->flags;

	for (size_t i = 0; i < record->size - sizeof(*record); i++)
		sum += record->payload[i];
	return sum;
}

static void read_everything(struct ring *ring)
{
	struct ring_statistics statistics;
	const struct ring_record *record;
	volatile uint64_t sum = 0;

	for (int round = 0; round < 3; round++) {
		while ((record = ring_read(ring)))
			sum += sum_bytes(record);
		ring_read_done(ring);
	}
	ring_statistics(ring, &statistics);
}

static void write_over_it(struct ring *ring)
{
	for (int i = 0; i < 20; i++) {
		void *payload = ring_reserve(ring, 8, 5000);

		if (payload)
			memset(payload, i, 5000);
		ring_commit(ring, payload);
	}
	ring_flush(ring);
}

static void overwrite(struct ring *ring, const void *from, size_t size, size_t offset)
{
	if (pwrite(ring_memory_fd(ring), from, size, offset) != (ssize_t)size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ring *ring, *attached;

	if (size < 16 || size > RING_SIZE_MIN || ring_create(&ring, RING_SIZE_MIN))
		return 0;
	overwrite(ring, data, 8, offsetof(struct ring_header, data_head));
	overwrite(ring, data + 8, 8, offsetof(struct ring_header, consumers));
	overwrite(ring, data + 16, size - 16, RING_DATA_OFFSET);
	if (!ring_attach(&attached, ring_memory_fd(ring))) {
		read_everything(attached);
		ring_destroy(attached);
	}
	read_everything(ring);
	write_over_it(ring);
	read_everything(ring);
	overwrite(ring, data, size < 256 ? size : 256, 0);
	if (!ring_attach(&attached, ring_memory_fd(ring))) {
		read_everything(attached);
		ring_destroy(attached);
	}
	ring_destroy(ring);
	return 0;
}
