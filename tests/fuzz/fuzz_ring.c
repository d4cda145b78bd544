/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers, snapshots and the writer on arbitrary memory, in both modes. Input: a mode, the changing
 * fields of the header, two consumer lines, then data from the start of the ring. At the end the
 * whole input is used as the header that attaching readers validate.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/ring_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	uint64_t mode; /* the lowest bit of the first byte */
	uint64_t head;
	uint64_t floors[2]; /* data_floor, wanted_floor */
	uint64_t holders;
	struct ring_consumer lines[2];
};

/* Every byte of a record must be readable. */
static uint64_t sum_bytes(const struct ring_record *record)
{
	uint64_t sum = record->type + record->flags;

	for (size_t i = 0; i < record->size - sizeof(*record); i++)
		sum += record->payload[i];
	return sum;
}

/* Keeps the compiler from dropping the reads. */
static volatile uint64_t seen;

static void read_snapshot(struct ring *ring)
{
	const struct ring_record *record = NULL;
	struct ring_snapshot snapshot;
	uint64_t count = 0;

	if (ring_snapshot(ring, &snapshot))
		return;
	while ((record = ring_snapshot_next(&snapshot, record))) {
		seen += sum_bytes(record);
		count += record->type != RING_RECORD_LOST;
	}
	if (count != snapshot.count)
		abort();
	ring_snapshot_free(&snapshot);
}

static void read_everything(struct ring *ring)
{
	struct ring_statistics statistics;
	const struct ring_record *record;

	for (int round = 0; round < 3; round++) {
		while ((record = ring_read(ring)))
			seen += sum_bytes(record);
		ring_read_done(ring);
	}
	ring_statistics(ring, &statistics);
	read_snapshot(ring);
}

static void write_over_it(struct ring *ring)
{
	for (int i = 0; i < 40; i++) {
		void *payload = ring_reserve(ring, 8, 5000);

		if (payload)
			memset(payload, i, 5000);
		if (i % 5)
			ring_commit(ring, payload);
		else
			ring_discard(ring, payload);
	}
	ring_wake_due(ring, 1);
	ring_flush(ring);
}

static void overwrite(struct ring *ring, const void *from, size_t size, size_t offset)
{
	if (pwrite(ring_memory_fd(ring), from, size, offset) != (ssize_t)size)
		abort();
}

static void spoil(struct ring *ring, const struct input *input, const uint8_t *data, size_t size)
{
	overwrite(ring, &input->head, sizeof(input->head), offsetof(struct ring_header, data_head));
	overwrite(ring, input->floors, sizeof(input->floors),
		  offsetof(struct ring_header, data_floor));
	overwrite(ring, &input->holders, sizeof(input->holders),
		  offsetof(struct ring_header, holders));
	overwrite(ring, input->lines, sizeof(input->lines),
		  offsetof(struct ring_header, consumers));
	overwrite(ring, data, size, RING_DATA_OFFSET);
}

/* Uses one reader of each kind while the writer continues. */
static void visit(struct ring *ring)
{
	for (int kind = 0; kind < 4; kind++) {
		struct ring_reader_options options = { .overrun = kind & 1, .newest = kind & 2 };
		struct ring *reader;

		if (ring_attach_with(&reader, ring_memory_fd(ring), &options))
			continue;
		read_everything(reader);
		write_over_it(ring);
		read_everything(reader);
		ring_destroy(reader);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ring_options options = { .size = RING_SIZE_MIN };
	struct input input;
	struct ring *ring;

	if (size < sizeof(input) || size > RING_SIZE_MIN)
		return 0;
	memcpy(&input, data, sizeof(input));
	options.mode = input.mode & 1 ? RING_MODE_OVERWRITE : RING_MODE_CONSUMER;
	if (ring_create_with(&ring, &options))
		return 0;
	spoil(ring, &input, data + sizeof(input), size - sizeof(input));
	visit(ring);
	read_everything(ring);
	write_over_it(ring);
	read_everything(ring);
	overwrite(ring, data, size < RING_DATA_OFFSET ? size : RING_DATA_OFFSET, 0);
	visit(ring);
	ring_destroy(ring);
	return 0;
}
