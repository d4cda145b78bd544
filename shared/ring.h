/* SPDX-License-Identifier: Apache-2.0 */
/* One lock-free ring per vCPU in a memfd that other processes can map: a single writer thread,
 * which its own signal handler may interrupt (like an NMI in the kernel), and its readers. Layout:
 * docs/ring-format.md. Consumer mode. If the ring is full, the new record is dropped and counted,
 * and a LOST record with the exact number precedes the next record that fits. Always: written +
 * lost + discarded = requested reservations. Overwrite mode (a flight recorder). If the ring is
 * full, the oldest records are overwritten. The writer moves the tail itself, always to the start
 * of a record: it stores the start of one record in the second half of the ring, the next tail, and
 * moves there when it needs the space. So at least half of the ring (minus the largest record and a
 * batch) is readable at any moment, even after the writer was killed. A mark at the next tail has
 * the number of records before it, so that an overrun reader can count its losses. The default
 * batch is one record in this mode, because unpublished records are lost when the writer is killed.
 * A record is dropped only if a handler writes it while an unfinished record is all that could be
 * overwritten. Readers. Each has its own position and its own struct ring: the creator's has one,
 * and ring_attach_with() creates more, in this process or in others. In consumer mode a reader
 * chooses whether it holds the tail. The writer does not overwrite what the slowest holder has not
 * released. A reader that does not hold the tail may be overrun, and gets the number of records it
 * lost. Without a holder records are kept for the next one, and the ring fills. A dead holder is
 * detected by the writer, when it flushes after dropped records, and by attaching readers
 * (ring_holders.c). In overwrite mode there are no holders. For every reader: before + records read
 * + overrun + unread = written. There are no sub-buffers, and no record is split: the data is
 * mapped twice in a row, so that a record can run over the end. Publishing. Readers see records
 * before data_head. The writer moves it once per batch of bytes, by ring_publish() or by
 * ring_flush(), and never past an unfinished record. Reserve, commit, discard and publish make no
 * system call, take no lock and do not allocate. Waking a reader is a system call, made only by
 * ring_flush(), which the writer calls when it can afford one (between two runs of its vCPU).
 * ring_wake_due() returns when it is due: after a number of bytes or records, or a time since the
 * first of them. It reads no clock, so the time bound holds only while the writer calls it; a
 * writer flushes before it sleeps.
 *
 * Synchronization. "W" is the writer thread, "H" a signal handler on top of
 * it, "R" a reader's thread, "X" any thread of any process that maps it.
 *
 *                   reserve  commit   publish  flush  read  stats  attach
 *   reserve         WH safe  WH safe  WH safe  W      safe  safe   safe
 *   commit          WH safe  WH safe  WH safe  W      safe  safe   safe
 *   publish         WH safe  WH safe  WH safe  W      safe  safe   safe
 *   flush           W        W        W        W      safe  safe   safe
 *   read            safe     safe     safe     safe   R     safe   safe
 *   stats           safe     safe     safe     safe   safe  X safe safe
 *   attach          safe     safe     safe     safe   safe  safe   X safe
 *
 *   commit   also discard
 *   read     also read_done
 *   stats    statistics and snapshot
 *   attach   also destroy, of a reader: no other function may use that struct ring meanwhile
 *   safe     the two may run at the same time
 *   WH safe  both on the writer thread, where the one may interrupt the
 *            other at any instruction
 *   W        on the writer thread, outside of handlers
 *   R        readers do not disturb each other; each by one thread at a time
 */
#ifndef KVMSCOPE_SHARED_RING_H
#define KVMSCOPE_SHARED_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_SIZE_MIN (64ul << 10)
#define RING_SIZE_MAX (1ul << 30)

/* Reservations that may be open at the same time; one more is dropped as if the ring were full. */
#define RING_OPEN_MAX 255

/* Types below 8 are the ring's own; readers see LOST and OVERRUN. */
enum ring_record_type {
	RING_RECORD_PADDING = 0,
	RING_RECORD_LOST = 1,
	RING_RECORD_OVERRUN = 3,
};

/* Precedes each record's payload; size counts header and payload, multiple of 8. */
struct ring_record {
	uint32_t size;
	uint16_t type;
	uint16_t flags;
	uint8_t payload[];
};

/* Payload of RING_RECORD_LOST: number of records dropped just before it. Payload of
 * RING_RECORD_OVERRUN, which is created by the reader and not in the ring: number of records that
 * were overwritten before this reader read them.
 */
struct ring_lost {
	uint64_t count;
};

/* One side's mapping of a ring: the creator's, which writes and may read, or an attached reader's.
 */
struct ring;

enum ring_mode {
	RING_MODE_CONSUMER = 0,  /* full: new records are dropped */
	RING_MODE_OVERWRITE = 1, /* full: the oldest records are overwritten */
};

/* All false: the reader holds the tail (in consumer mode) and starts with the oldest record. */
struct ring_reader_options {
	bool overrun; /* does not hold the tail; implied in overwrite mode */
	bool newest;  /* starts after the newest record that is published now */
};

/* Zero means the default for all fields except size. */
struct ring_options {
	size_t size;  /* bytes of data: a power of two, RING_SIZE_MIN to RING_SIZE_MAX */
	size_t batch; /* bytes after which commit publishes by itself; default size / 16, see below
		       */
	size_t watermark;           /* bytes after which a wake-up is due; default size / 4 */
	uint64_t watermark_records; /* records after which one is due; default no limit */
	uint64_t latency; /* ns after which one is due for a single record; default 100 ms */
	enum ring_mode mode;
	struct ring_reader_options reader; /* the creator's own: overrun if only others read */
};

struct ring_statistics {
	uint64_t written;   /* records committed */
	uint64_t lost;      /* records dropped because the ring was full or they were too large */
	uint64_t discarded; /* reservations discarded */
	uint64_t unread;    /* records committed, not yet read nor overwritten, published or not */
	uint64_t before;    /* records written before this reader's first one */
	uint64_t
		overrun; /* records overwritten before this reader read them; not counted as lost */
	uint64_t open;   /* unfinished reservations, e.g. of a killed writer */
	uint64_t broken; /* times the reader found an invalid record and skipped to the head */
};

/* Creates a ring with SIZE bytes of data in consumer mode and with default options, or with
 * OPTIONS. -EINVAL for a bad size or mode, -ENOMEM, errors of memfd_create(), eventfd() and mmap().
 * Any thread.
 */
int ring_create(struct ring **ring, size_t size);
int ring_create_with(struct ring **ring, const struct ring_options *options);

/* Attaches a reader to the ring in MEMORY_FD, which comes from ring_memory_fd() of this or another
 * process and stays the caller's. Only reading, statistics, snapshots and destroying work on the
 * result. The memory is untrusted. A reader that may be overrun maps it read-only, and MEMORY_FD
 * may be read-only. A holder of the tail opens the memory again through /proc/self/fd; after a
 * fork() it holds the tail until both processes release it. -EINVAL: not a ring of a known version;
 * -EBUSY: 16 readers hold the tail; errors of open(), fstat() and mmap(). Any thread; may wait a
 * second for other readers that attach.
 */
int ring_attach_with(struct ring **ring, int memory_fd, const struct ring_reader_options *options);
/* With no options set. */
int ring_attach(struct ring **ring, int memory_fd);

/* Unmaps the ring, which stays alive where other processes map it. A holder releases the tail:
 * records that it has not released are kept for the other holders or the next one. May wait like
 * attaching. NULL is a no-op.
 */
void ring_destroy(struct ring *ring);

/* The memfd, for other processes to map; owned by the ring and sealed against size changes. The
 * eventfd that ring_flush() signals; -1 on an attached ring.
 */
int ring_memory_fd(const struct ring *ring);
int ring_event_fd(const struct ring *ring);

/* The largest payload of a record in bytes: half of the ring minus some headers. */
size_t ring_payload_max(const struct ring *ring);

/* Reserves a record of TYPE (8 and up) with PAYLOAD bytes. Returns the payload, 8-byte aligned,
 * which the caller fills and passes to ring_commit() or ring_discard() on the same thread.
 * Reservations nest and may end in any order. NULL if the ring is full or the record is larger than
 * ring_payload_max(); it then counts as lost. Writer thread and its signal handlers only.
 */
void *ring_reserve(struct ring *ring, uint16_t type, size_t payload);

/* True if ring_reserve() would succeed now with PAYLOAD bytes. Counts nothing as lost. Consumer
 * mode only. Writer thread only, not in handlers.
 */
bool ring_has_room(struct ring *ring, size_t payload);

/* Finish a reservation; NULL is a no-op. The space of a discarded record is freed if it is the
 * newest; otherwise the record becomes padding, which readers do not see. Writer thread and its
 * handlers only.
 */
void ring_commit(struct ring *ring, void *payload);
void ring_discard(struct ring *ring, void *payload);

/* Makes all records before the oldest unfinished one visible to readers. No system call. Writer
 * thread and its handlers only.
 */
void ring_publish(struct ring *ring);

/* True if ring_flush() is due: because of records written since the last one, or of dropped
 * records, as a holder may have died. NOW is ns of any one clock. No system call. Writer thread
 * only, not in handlers.
 */
bool ring_wake_due(struct ring *ring, uint64_t now);

/* Writes pending losses as a LOST record, publishes, and wakes the reader by one non-blocking
 * write() to the eventfd if there is anything new. If records were dropped since the last flush, it
 * releases the tail of dead holders by a few non-blocking fcntl(). Writer thread only, not in
 * handlers.
 */
void ring_flush(struct ring *ring);

/* The next unread record, or NULL. It is a copy, which cannot change after it was checked; it
 * belongs to the ring and is valid until the next ring_read(). Invalid bytes are skipped up to the
 * head and counted. A reader that was overrun gets an OVERRUN record (in overwrite mode also for
 * records overwritten before it attached). Also NULL without memory for the copy, which leaves the
 * record unread, and if the reader is overrun many times within one call. One thread at a time.
 */
const struct ring_record *ring_read(struct ring *ring);

/* Releases the space of all records read so far, if this reader holds the tail. The reader's thread
 * only. */
void ring_read_done(struct ring *ring);

/* A copy of a ring's content at one moment, owned by the caller. Taking it does not delay the
 * writer. */
struct ring_snapshot {
	uint64_t before; /* records written before the first one here: overwritten or released */
	uint64_t count;  /* records here, except LOST */
	bool broken;     /* ends early, at an invalid record */
	/* For ring_snapshot_next(). */
	size_t size;
	uint8_t *bytes;
};

/* Copies all whole records from the oldest to the newest published one: before + count = records
 * written up to there. The writer may overwrite the oldest records meanwhile; they then count in
 * before. Does not affect readers. -ENOMEM; -EAGAIN if the writer overwrote everything several
 * times, or the memory is invalid. Any thread, with the RING of the writer or of a reader.
 */
int ring_snapshot(const struct ring *ring, struct ring_snapshot *snapshot);

/* The record after PREVIOUS, or the first one if PREVIOUS is NULL; NULL at the end. Valid until the
 * snapshot is freed. */
const struct ring_record *ring_snapshot_next(const struct ring_snapshot *snapshot,
					     const struct ring_record *previous);

/* Frees the copy, not SNAPSHOT itself. */
void ring_snapshot_free(struct ring_snapshot *snapshot);

/* Any thread. Exact only while the writer is idle. */
void ring_statistics(const struct ring *ring, struct ring_statistics *statistics);

#endif
