/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/ring_layout.h"

/* ns */
#define DEFAULT_LATENCY 100000000u

static bool size_is_good(uint64_t size)
{
	return size >= RING_SIZE_MIN && size <= RING_SIZE_MAX && !(size & (size - 1));
}

static void set_mode(struct ring *ring, enum ring_mode mode)
{
	bool overwrite = mode == RING_MODE_OVERWRITE;

	ring->mode = mode;
	ring->room = overwrite ? ring_overwrite_room : ring_consumer_room;
	/* A LOST record and a mark must fit, too: ring_overwrite.c. */
	ring->payload_max = ring->size / 2 - sizeof(struct ring_record) -
			    (overwrite ? RING_LOST_SIZE + RING_MARK_SIZE : 0);
	/* Prefetching helps if readers touch all records, but not if most are overwritten unread.
	 */
	ring->prefetch = overwrite ? UINT64_MAX : 0;
	ring->writer.limit = overwrite ? ring->size / 2 : ring->size;
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

static int map_part(const struct ring *ring, uint8_t *at, size_t size, off_t offset, int protection)
{
	void *part = mmap(at, size, protection, MAP_SHARED | MAP_FIXED, ring->memory_fd, offset);

	return part == MAP_FAILED ? -errno : 0;
}

/* Maps header and data, and the data once more after them. */
static int map_twice(struct ring *ring, int protection)
{
	int error;
	uint8_t *at = mmap(NULL, mapping_size(ring), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return error_set(-errno, "no address space for a ring of %zu bytes: %m",
				 (size_t)ring->size);
	ring->header = (struct ring_header *)at;
	ring->data = at + RING_DATA_OFFSET;
	error = map_part(ring, at, RING_DATA_OFFSET + ring->size, 0, protection);
	if (!error)
		error = map_part(ring, ring->data + ring->size, ring->size, RING_DATA_OFFSET,
				 protection);
	if (error)
		return error_set(error, "cannot map a ring of %zu bytes: %s", (size_t)ring->size,
				 strerror(-error));
	return 0;
}

static int make_memory(struct ring *ring)
{
	ring->memory_fd = memfd_create("kvmscope-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ring->memory_fd < 0)
		return error_set(-errno, "memfd_create for a ring failed: %m");
	if (ftruncate(ring->memory_fd, RING_DATA_OFFSET + ring->size))
		return error_set(-errno, "no memory for a ring of %zu bytes: %m",
				 (size_t)ring->size);
	/* Another process that maps it must not be able to truncate it. */
	if (fcntl(ring->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return error_set(-errno, "sealing the size of a ring failed: %m");
	ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ring->event_fd < 0)
		return error_set(-errno, "eventfd for a ring failed: %m");
	return map_twice(ring, PROT_READ | PROT_WRITE);
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
	return options->mode == RING_MODE_OVERWRITE ? sizeof(struct ring_record)
						    : options->size / 16;
}

/* In overwrite mode the first mark has the number of records overwritten before. */
static int start_overrun(struct ring *ring)
{
	struct ring_place oldest;

	if (ring->mode == RING_MODE_OVERWRITE) {
		ring->reader.position = ring_floor(ring);
		ring->reader.resync = ring->reader.position;
		return 0;
	}
	if (!ring_oldest(ring, &oldest))
		return error_set(
			-EAGAIN,
			"no place to begin reading a ring at was found: its header is broken");
	ring->reader.position = oldest.position;
	ring->reader.read = oldest.before;
	return 0;
}

/* Skips all records that are published now. */
static void skip_to_newest(struct ring *ring)
{
	uint64_t head = load_acquire(&ring->header->data_head);

	while (ring->reader.position < head && ring_read(ring))
		;
	ring_read_done(ring);
	ring->reader.before = ring->reader.read;
	ring->reader.overrun = 0;
}

static bool may_be_overrun(const struct ring *ring, const struct ring_reader_options *options)
{
	return options->overrun || ring->mode == RING_MODE_OVERWRITE;
}

static int start_reading(struct ring *ring, const struct ring_reader_options *options)
{
	int error = may_be_overrun(ring, options) ? start_overrun(ring) : ring_hold(ring);

	ring->reader.before = ring->reader.read;
	if (!error && options->newest)
		skip_to_newest(ring);
	return error;
}

int ring_create_with(struct ring **result, const struct ring_options *options)
{
	struct ring *ring;
	int error;

	if (!size_is_good(options->size))
		return error_set(
			-EINVAL,
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
	ring->watermark_records =
		options->watermark_records ? options->watermark_records : UINT64_MAX;
	ring->latency = options->latency ? options->latency : DEFAULT_LATENCY;
	error = make_memory(ring);
	if (!error) {
		fill_header(ring);
		error = start_reading(ring, &options->reader);
	}
	if (error) {
		ring_destroy(ring);
		return error;
	}
	*result = ring;
	return 0;
}

int ring_create(struct ring **ring, size_t size)
{
	struct ring_options options = { .size = size };

	return ring_create_with(ring, &options);
}

/* Checks the header against the size of its file. */
static int check_header(const struct ring_header *header, uint64_t file_size)
{
	if (header->magic != RING_MAGIC)
		return error_set(-EINVAL, "this is not a ring: the magic number is missing");
	if (header->version != RING_VERSION || header->header_size < sizeof(*header))
		return error_set(
			-EINVAL,
			"the ring has version %u, this program knows %u: use matching versions",
			header->version, RING_VERSION);
	if (header->mode > RING_MODE_OVERWRITE)
		return error_set(-EINVAL, "the ring has mode %u, which this program does not know",
				 header->mode);
	if (header->data_offset != RING_DATA_OFFSET || !size_is_good(header->data_size) ||
	    file_size < RING_DATA_OFFSET + header->data_size)
		return error_set(-EINVAL,
				 "the ring's header is invalid: its data is outside of the file");
	return 0;
}

static int read_header(int fd, struct ring_header *header)
{
	struct stat status;
	ssize_t size = pread(fd, header, sizeof(*header), 0);

	if (size < 0 || fstat(fd, &status))
		return error_set(-errno, "cannot read the ring's header: %m");
	if (size != sizeof(*header))
		return error_set(-EINVAL, "this is not a ring: it is smaller than a header");
	if ((fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
		return error_set(
			-EINVAL,
			"the ring's memory is not sealed: it could be cut while it is read");
	return check_header(header, status.st_size);
}

/* A holder's lock belongs to the open file description, so it needs its own one. */
static int open_memory(struct ring *ring, int memory_fd, bool own)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory_fd);
	ring->memory_fd =
		own ? open(path, O_RDWR | O_CLOEXEC) : fcntl(memory_fd, F_DUPFD_CLOEXEC, 0);
	if (ring->memory_fd >= 0)
		return 0;
	return error_set(
		-errno,
		own ? "cannot open the ring's memory for writing, which a holder of its tail needs "
		      "(%s: %m): attach as a reader that may be overrun"
		    : "cannot duplicate the ring's descriptor (%s: %m)",
		path);
}

int ring_attach_with(struct ring **result, int memory_fd, const struct ring_reader_options *options)
{
	struct ring_header header;
	struct ring *ring;
	bool holds;
	int error = read_header(memory_fd, &header);

	if (error)
		return error;
	ring = new_ring(header.data_size, header.mode);
	if (!ring)
		return error_set(-ENOMEM, "no memory for a ring");
	holds = !may_be_overrun(ring, options);
	error = open_memory(ring, memory_fd, holds);
	if (!error)
		error = map_twice(ring, holds ? PROT_READ | PROT_WRITE : PROT_READ);
	if (!error)
		error = start_reading(ring, options);
	if (error) {
		ring_destroy(ring);
		return error;
	}
	*result = ring;
	return 0;
}

int ring_attach(struct ring **ring, int memory_fd)
{
	return ring_attach_with(ring, memory_fd, &(struct ring_reader_options){ 0 });
}

void ring_destroy(struct ring *ring)
{
	if (!ring)
		return;
	if (ring->header) {
		ring_release(ring);
		munmap(ring->header, mapping_size(ring));
	}
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

/* Number of unread records that are overwritten already. */
static uint64_t newly_overrun(const struct ring *ring, uint64_t read)
{
	struct ring_place oldest;

	/* In consumer mode records before the tail are readable until the floor has passed them. */
	if (ring->mode == RING_MODE_CONSUMER &&
	    ring_floor(ring) <= __atomic_load_n(&ring->reader.position, __ATOMIC_RELAXED))
		return 0;
	return ring_oldest(ring, &oldest) ? difference(oldest.before, read) : 0;
}

static void reader_statistics(const struct ring *ring, struct ring_statistics *statistics)
{
	uint64_t read = __atomic_load_n(&ring->reader.read, __ATOMIC_RELAXED);
	uint64_t overrun = newly_overrun(ring, read);

	statistics->before = ring->reader.before;
	statistics->overrun = __atomic_load_n(&ring->reader.overrun, __ATOMIC_RELAXED) + overrun;
	statistics->unread = difference(statistics->written, read + overrun);
	statistics->broken = __atomic_load_n(&ring->reader.broken, __ATOMIC_RELAXED);
}

void ring_statistics(const struct ring *ring, struct ring_statistics *statistics)
{
	const struct ring_header *header = ring->header;
	uint64_t opened;

	/* Read the finished ones first: all of them were opened by then. */
	statistics->written = __atomic_load_n(&header->written, __ATOMIC_ACQUIRE);
	statistics->lost = __atomic_load_n(&header->lost, __ATOMIC_RELAXED);
	statistics->discarded = __atomic_load_n(&header->discarded, __ATOMIC_ACQUIRE);
	opened = __atomic_load_n(&header->opened, __ATOMIC_RELAXED);
	statistics->open = difference(opened, statistics->written + statistics->discarded);
	reader_statistics(ring, statistics);
}
