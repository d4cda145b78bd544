// SPDX-License-Identifier: Apache-2.0
#include "shared/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/ring_layout.h"

static bool size_is_good(uint64_t size)
{
	return size >= RING_SIZE_MIN && size <= RING_SIZE_MAX && !(size & (size - 1));
}

static void set_mode(struct ring *ring, enum ring_mode mode)
{
	bool overwrite = mode == RING_MODE_OVERWRITE;

	ring->mode = mode;
	ring->reserve = overwrite ? ring_reserve_overwrite : ring_reserve_consumer;
	/* A LOST record may go with it, and a mark must fit beside: ring_overwrite.c. */
	ring->payload_max = ring->size / 2 - sizeof(struct ring_record) -
			    (overwrite ? RING_LOST_SIZE + RING_MARK_SIZE : 0);
	ring->writer.limit = ring->size / 2;
}

static struct ring *new_ring(uint64_t size, enum ring_mode mode)
{
	struct ring *ring = aligned_alloc(64, sizeof(*ring));

	if (!ring)
		return NULL;
	memset(ring, 0, sizeof(*ring));
	ring->size = size;
	ring->mask = size - 1;
	ring->memory_fd = -1;
	ring->event_fd = -1;
	set_mode(ring, mode);
	return ring;
}

static size_t mapping_size(const struct ring *ring)
{
	return RING_DATA_OFFSET + 2 * ring->size;
}

static int map_part(uint8_t *at, size_t size, int fd, off_t offset)
{
	void *part = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset);

	return part == MAP_FAILED ? -errno : 0;
}

/* Maps header and data, and the data once more behind them. */
static int map_twice(struct ring *ring)
{
	int error;
	uint8_t *at = mmap(NULL, mapping_size(ring), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return error_set(-errno, "no address space for a ring of %zu bytes: %m", (size_t)ring->size);
	ring->header = (struct ring_header *)at;
	ring->data = at + RING_DATA_OFFSET;
	error = map_part(at, RING_DATA_OFFSET + ring->size, ring->memory_fd, 0);
	if (!error)
		error = map_part(ring->data + ring->size, ring->size, ring->memory_fd, RING_DATA_OFFSET);
	if (error)
		return error_set(error, "can not map a ring of %zu bytes: %s", (size_t)ring->size,
				 strerror(-error));
	return 0;
}

static int make_memory(struct ring *ring)
{
	ring->memory_fd = memfd_create("kvmscope-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ring->memory_fd < 0)
		return error_set(-errno, "memfd_create for a ring failed: %m");
	if (ftruncate(ring->memory_fd, RING_DATA_OFFSET + ring->size))
		return error_set(-errno, "no memory for a ring of %zu bytes: %m", (size_t)ring->size);
	/* Another process that maps it must not be able to cut it under us. */
	if (fcntl(ring->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return error_set(-errno, "sealing the size of a ring failed: %m");
	ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ring->event_fd < 0)
		return error_set(-errno, "eventfd for a ring failed: %m");
	return map_twice(ring);
}

static void fill_header(struct ring *ring)
{
	struct ring_header *header = ring->header;

	header->version = RING_VERSION;
	header->header_size = sizeof(*header);
	header->data_offset = RING_DATA_OFFSET;
	header->data_size = ring->size;
	header->mode = ring->mode;
	header->clock = CLOCK_MONOTONIC_RAW;
	header->writer_pid = getpid();
	__atomic_store_n(&header->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

static size_t default_batch(const struct ring_options *options)
{
	return options->mode == RING_MODE_OVERWRITE ? sizeof(struct ring_record) : options->size / 16;
}

/* Consumer mode has one consumer from the start, who holds the tail; in overwrite mode none does. */
static void start_reading(struct ring *ring)
{
	struct ring_consumer *first = &ring->header->consumers[0];

	if (ring->mode == RING_MODE_OVERWRITE) {
		ring->reader.position = __atomic_load_n(&ring->header->data_floor, __ATOMIC_ACQUIRE) & ~7ull;
		ring->reader.resync = ring->reader.position;
		return;
	}
	ring->reader.consumer = first;
	ring_consumer_position(first, &ring->reader.position, &ring->reader.read);
}

int ring_create_with(struct ring **result, const struct ring_options *options)
{
	struct ring *ring;
	int error;

	if (!size_is_good(options->size))
		return error_set(-EINVAL,
				 "a ring of %zu bytes is not possible: the size must be a power of two from "
				 "%lu to %lu",
				 options->size, RING_SIZE_MIN, RING_SIZE_MAX);
	if (options->mode > RING_MODE_OVERWRITE)
		return error_set(-EINVAL, "a ring of mode %d is not known", (int)options->mode);
	ring = new_ring(options->size, options->mode);
	if (!ring)
		return error_set(-ENOMEM, "no memory for a ring");
	ring->batch = options->batch ? options->batch : default_batch(options);
	ring->watermark = options->watermark ? options->watermark : options->size / 4;
	error = make_memory(ring);
	if (error) {
		ring_destroy(ring);
		return error;
	}
	fill_header(ring);
	start_reading(ring);
	*result = ring;
	return 0;
}

int ring_create(struct ring **ring, size_t size)
{
	struct ring_options options = { .size = size };

	return ring_create_with(ring, &options);
}

/* The header's promises, checked against the file that they are about. */
static int check_header(const struct ring_header *header, uint64_t file_size)
{
	if (header->magic != RING_MAGIC)
		return error_set(-EINVAL, "this is no ring: the magic number is missing");
	if (header->version != RING_VERSION || header->header_size < sizeof(*header))
		return error_set(-EINVAL,
				 "the ring has version %u, this program knows %u: use matching versions",
				 header->version, RING_VERSION);
	if (header->mode > RING_MODE_OVERWRITE)
		return error_set(-EINVAL, "the ring has mode %u, which this program does not know",
				 header->mode);
	if (header->data_offset != RING_DATA_OFFSET || !size_is_good(header->data_size) ||
	    file_size < RING_DATA_OFFSET + header->data_size)
		return error_set(-EINVAL, "the ring's header is broken: its data do not lie inside it");
	return 0;
}

static int read_header(int fd, struct ring_header *header)
{
	struct stat status;
	ssize_t size = pread(fd, header, sizeof(*header), 0);

	if (size < 0 || fstat(fd, &status))
		return error_set(-errno, "can not read the ring's header: %m");
	if (size != sizeof(*header))
		return error_set(-EINVAL, "this is no ring: it is smaller than a header");
	if ((fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
		return error_set(-EINVAL,
				 "the ring's memory is not sealed: it could be cut while it is read");
	return check_header(header, status.st_size);
}

int ring_attach(struct ring **result, int memory_fd)
{
	struct ring_header header;
	struct ring *ring;
	int error = read_header(memory_fd, &header);

	if (error)
		return error;
	ring = new_ring(header.data_size, header.mode);
	if (!ring)
		return error_set(-ENOMEM, "no memory for a ring");
	ring->memory_fd = fcntl(memory_fd, F_DUPFD_CLOEXEC, 0);
	error = ring->memory_fd < 0 ? error_set(-errno, "can not duplicate the ring's descriptor: %m")
				    : map_twice(ring);
	if (error) {
		ring_destroy(ring);
		return error;
	}
	start_reading(ring);
	*result = ring;
	return 0;
}

void ring_destroy(struct ring *ring)
{
	if (!ring)
		return;
	if (ring->header)
		munmap(ring->header, mapping_size(ring));
	if (ring->memory_fd >= 0)
		close(ring->memory_fd);
	if (ring->event_fd >= 0)
		close(ring->event_fd);
	free(ring->reader.copy);
	free(ring);
}

int ring_memory_fd(const struct ring *ring)
{
	return ring->memory_fd;
}

int ring_event_fd(const struct ring *ring)
{
	return ring->event_fd;
}

size_t ring_payload_max(const struct ring *ring)
{
	return ring->payload_max;
}

static uint64_t difference(uint64_t more, uint64_t less)
{
	return more > less ? more - less : 0;
}

/* Of WRITTEN records, those that this ring's reader has still to come. */
static uint64_t unread(const struct ring *ring, uint64_t written)
{
	uint64_t read = __atomic_load_n(&ring->reader.read, __ATOMIC_RELAXED), position, gone;

	if (ring_oldest(ring, &position, &gone) && gone > read)
		read = gone;
	return difference(written, read);
}

void ring_statistics(const struct ring *ring, struct ring_statistics *statistics)
{
	const struct ring_header *header = ring->header;
	uint64_t opened;

	/* What is finished first: it was all opened by then. */
	statistics->written = __atomic_load_n(&header->written, __ATOMIC_ACQUIRE);
	statistics->lost = __atomic_load_n(&header->lost, __ATOMIC_RELAXED);
	statistics->discarded = __atomic_load_n(&header->discarded, __ATOMIC_ACQUIRE);
	opened = __atomic_load_n(&header->opened, __ATOMIC_RELAXED);
	statistics->open = difference(opened, statistics->written + statistics->discarded);
	statistics->unread = unread(ring, statistics->written);
	statistics->overrun = __atomic_load_n(&ring->reader.overrun, __ATOMIC_RELAXED);
	statistics->broken = __atomic_load_n(&ring->reader.broken, __ATOMIC_RELAXED);
}
