/* SPDX-License-Identifier: Apache-2.0 */
/* The holders of a ring's tail in consumer mode.
 * A holder owns a line of the header and a lock on that line's bytes of the memfd (fcntl(2), open
 * file description locks). The kernel releases the lock when the consumer closes its descriptor or
 * its process ends in any way: a line with its bit set but without a lock belongs to a dead
 * consumer. Process ids would be reused, and mean nothing in another namespace. Consumers set and
 * clear bits under another such lock, on the word of the bits, and first clear those of dead
 * consumers. The writer clears them, too, after it dropped records, but does not wait for the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/ring_layout.h"

/* Attaching takes microseconds; do not wait forever for a process that is stopped while it
 * attaches. */
#define LOCK_TRIES   1000
#define LOCK_WAIT_US 1000
#define ATTACH_TRIES 64

static off_t line_offset(unsigned int line)
{
	return (off_t)(offsetof(struct ring_header, consumers) +
		       line * sizeof(struct ring_consumer));
}

/* Applies COMMAND to the 8 bytes at OFFSET. F_OFD_GETLK sets *TYPE to the existing lock. */
static int lock_command(const struct ring *ring, int command, off_t offset, short *type)
{
	struct flock lock = {
		.l_type = *type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 8
	};
	int result = fcntl(ring->memory_fd, command, &lock) ? -errno : 0;

	*type = lock.l_type;
	return result;
}

static int set_lock(const struct ring *ring, off_t offset, short type)
{
	return lock_command(ring, F_OFD_SETLK, offset, &type);
}

static int lock_holders(const struct ring *ring)
{
	int error;

	for (int try = 0; try < LOCK_TRIES; try++) {
		error = set_lock(ring, offsetof(struct ring_header, holders), F_WRLCK);
		if (error != -EAGAIN && error != -EACCES)
			break;
		usleep(LOCK_WAIT_US);
	}
	if (error == -EAGAIN || error == -EACCES)
		return error_set(-EBUSY,
				 "another process hangs while it attaches to the ring: end it");
	return error ? error_set(error, "cannot lock a ring's consumers: %s", strerror(-error)) : 0;
}

static void unlock_holders(const struct ring *ring)
{
	set_lock(ring, offsetof(struct ring_header, holders), F_UNLCK);
}

static bool is_dead(const struct ring *ring, unsigned int line)
{
	short type = F_WRLCK;

	return !lock_command(ring, F_OFD_GETLK, line_offset(line), &type) && type == F_UNLCK;
}

/* Stores the holder's place as the tail, in case it was the last one. */
static void clear_line(struct ring *ring, unsigned int line)
{
	struct ring_header *header = ring->header;
	struct ring_place place;

	if (ring_consumer_place(&header->consumers[line], &place) &&
	    place.position >= load_acquire(&header->wanted_floor))
		ring_consumer_set(&header->consumers[RING_CONSUMERS], &place);
	shared_clear_bits(&header->holders, 1ull << line);
}

/* Called with the holders locked. Skips the own line, whose lock F_OFD_GETLK does not report. */
static void clear_dead_lines(struct ring *ring)
{
	struct ring_header *header = ring->header;
	uint64_t holders = load_acquire(&header->holders);

	for (unsigned int i = 0; i < RING_CONSUMERS; i++)
		if (holders >> i & 1 && ring->reader.consumer != &header->consumers[i] &&
		    is_dead(ring, i))
			clear_line(ring, i);
}

/* Starts at the place of the slowest other holder that the writer does not request to pass; retries
 * if it requested more meanwhile.
 */
static int begin_at_tail(struct ring *ring, unsigned int line)
{
	struct ring_header *header = ring->header;
	struct ring_place place;

	for (int try = 0; try < ATTACH_TRIES; try++) {
		if (!ring_tail(ring, load_acquire(&header->holders) & ~(1ull << line),
			       load_acquire(&header->wanted_floor), &place))
			continue;
		ring_consumer_set(&header->consumers[line], &place);
		shared_set_bits(&header->holders, 1ull << line);
		full_barrier();
		if (load_acquire(&header->wanted_floor) > place.position)
			continue;
		ring->reader.consumer = &header->consumers[line];
		ring->reader.released = place.position;
		ring->reader.position = place.position;
		ring->reader.read = place.before;
		return 0;
	}
	shared_clear_bits(&header->holders, 1ull << line);
	return error_set(-EAGAIN,
			 "no place to begin reading a ring at was found: its header is broken");
}

static int take_line(struct ring *ring)
{
	uint64_t holders = load_acquire(&ring->header->holders);

	for (unsigned int i = 0; i < RING_CONSUMERS; i++)
		if (!(holders >> i & 1) && !set_lock(ring, line_offset(i), F_WRLCK))
			return begin_at_tail(ring, i);
	return error_set(
		-EBUSY,
		"%d readers hold the ring's tail already: end one, or attach as one that may be overrun",
		RING_CONSUMERS);
}

int ring_hold(struct ring *ring)
{
	int error = lock_holders(ring);

	if (error)
		return error;
	clear_dead_lines(ring);
	error = take_line(ring);
	unlock_holders(ring);
	return error;
}

void ring_release(struct ring *ring)
{
	struct ring_consumer *consumer = ring->reader.consumer;

	if (!consumer || lock_holders(ring))
		return;
	clear_dead_lines(ring);
	clear_line(ring, consumer - ring->header->consumers);
	unlock_holders(ring);
}

void ring_release_dead(struct ring *ring)
{
	if (set_lock(ring, offsetof(struct ring_header, holders), F_WRLCK))
		return;
	clear_dead_lines(ring);
	unlock_holders(ring);
}
