/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock-free ring per vCPU: a single writer thread (which may be
 * interrupted by its own signal handler, the user-space form of an NMI over
 * a task) and its readers, over a memfd that other processes can map. The
 * layout is in docs/ring-format.md.
 *
 * Consumer mode. Full means: the new record is dropped and counted, and a LOST
 * record with the exact number stands in the stream before the next one that
 * fits. So written + lost + discarded = reservations asked for, always.
 *
 * Overwrite mode (a flight recorder): full means that the oldest records go.
 * The writer moves the tail itself, from record to record: it remembers one
 * record's start behind the first half of the ring, the next tail, and goes
 * there when it needs the space. So at least a half of the ring (less the
 * largest record and a batch) can be read at any moment, also when the writer
 * was killed. At the next tail stands a mark with the number of records before
 * it, so that a reader that was overrun knows how many it lost. A batch is by
 * default one record there: what the writer has not published when it is
 * killed is gone. Only a record that a handler writes while an unfinished one
 * is all that there is to overwrite is dropped.
 *
 * Readers. Each has its own position and its own struct ring: the maker's has
 * one, and ring_attach_with() makes more, in this process or in others. In
 * consumer mode a reader says whether it holds the tail. If it does, the writer
 * overwrites nothing that it has not given back; the slowest holder counts.
 * If it does not, it may be overrun, and is told how many records it lost.
 * What nobody holds is kept for the next holder, and the ring fills. A holder
 * that dies holds no longer: the writer finds out when it has dropped records
 * and flushes, and so does whoever attaches (ring_holders.c). In overwrite
 * mode nobody holds the tail. For every reader, before + what it read +
 * overrun + unread = written.
 *
 * There are no sub-buffers, and no record is ever split: the data is mapped
 * twice in a row, so that one that runs over the end goes on at the start.
 *
 * Publishing. Readers see what lies before data_head. The writer moves it
 * once per batch of bytes, by ring_publish() or by ring_flush(), and never
 * over a record that is not finished. None of reserve, commit, discard and
 * publish makes a system call, takes a lock or allocates. Waking a reader is
 * a system call; only ring_flush() makes it, where the writer can afford one
 * (between two runs of its vCPU). ring_wake_due() says when: after so many
 * bytes, so many records, or so much time since the first of them. It reads no
 * clock, so the bound holds while the writer calls it; one that goes to sleep
 * flushes first.
 *
 * Synchronization. "W" is the writer thread, "H" a signal handler on top of
 * it, "R" a reader's thread, "X" any thread of any process that maps it.
 *
 *                    reserve  commit/discard  publish  flush  read/done  statistics/snapshot
 * attach/destroy reserve          WH safe  WH safe         WH safe  W      safe       safe safe
 *   commit/discard   WH safe  WH safe         WH safe  W      safe       safe                 safe
 *   publish          WH safe  WH safe         WH safe  W      safe       safe                 safe
 *   flush            W        W               W        W      safe       safe                 safe
 *   read/done        safe     safe            safe     safe   R          safe                 safe
 *   statistics/      safe     safe            safe     safe   safe       X safe               safe
 *   snapshot
 *   attach/destroy   safe     safe            safe     safe   safe       safe                 X
 * safe
 *
 *   safe     the two may run at the same time
 *   WH safe  both on the writer thread, where the one may interrupt the
 *            other at any instruction
 *   W        on the writer thread, outside of handlers
 *   R        readers do not disturb each other; each by one thread at a time
 *   destroy: of a reader. Nobody may use a struct ring that is being destroyed.
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

/*
 * Payload of RING_RECORD_LOST: so many records were dropped just before here.
 * Payload of RING_RECORD_OVERRUN, which is not in the ring but made by its
 * reader: so many were overwritten before this reader came to them.
 */
struct ring_lost {
	uint64_t count;
};

/* The ring as one side has it mapped: its maker, who writes and may read, or a reader that
 * attached. */
struct ring;

enum ring_mode {
	RING_MODE_CONSUMER = 0,  /* full: new records are dropped */
	RING_MODE_OVERWRITE = 1, /* full: the oldest records are overwritten */
};

/* How a reader reads; all false: it holds the tail (in consumer mode), and begins with the oldest
 * record. */
struct ring_reader_options {
	bool overrun; /* it does not hold the tail; always so in overwrite mode */
	bool newest;  /* it begins behind the newest record that is published now */
};

/* Zero means the default for each but the size. */
struct ring_options {
	size_t size;  /* bytes of data: a power of two, RING_SIZE_MIN to RING_SIZE_MAX */
	size_t batch; /* bytes after which commit publishes by itself; default size / 16, see below
		       */
	size_t watermark;           /* bytes after which a wake-up is due; default size / 4 */
	uint64_t watermark_records; /* records after which one is due; default no such limit */
	uint64_t latency; /* ns after which one is due for a single record; default 100 ms */
	enum ring_mode mode;
	struct ring_reader_options reader; /* the maker's own: overrun if only others are to read */
};

struct ring_statistics {
	uint64_t written;   /* records committed */
	uint64_t lost;      /* records dropped because the ring was full or they were too large */
	uint64_t discarded; /* reservations given back */
	uint64_t unread;    /* records committed, not yet read nor overwritten, published or not */
	uint64_t before;    /* records written before the first one that this reader asked for */
	uint64_t
		overrun; /* records overwritten before this reader read them; not counted as lost */
	uint64_t open;   /* reservations not finished; what a killed writer had in flight */
	uint64_t broken; /* times the reader met bytes that are no record and went on behind the
			    head */
};

/*
 * Makes a ring with SIZE bytes of data and the default batch and watermark,
 * in consumer mode; or as OPTIONS say. -EINVAL for a bad size or mode, -ENOMEM and the errors of
 * memfd_create(), eventfd() and mmap() otherwise. Any thread.
 */
int ring_create(struct ring **ring, size_t size);
int ring_create_with(struct ring **ring, const struct ring_options *options);

/*
 * Attaches a reader to the ring behind MEMORY_FD (as another process got it
 * from ring_memory_fd(), or this one; stays the caller's). Only reading,
 * statistics, snapshots and destroying work on it. Nothing in the memory is
 * trusted. One that may be overrun maps the memory read-only, and MEMORY_FD
 * may be open for reading only. One that holds the tail opens the memory again
 * through /proc/self/fd; after a fork() it holds until both processes are done.
 * -EINVAL if it is no ring of a version we know, -EBUSY if 16 readers hold its
 * tail, else the errors of open(), fstat() and mmap(). Any thread; may wait a
 * second for others that attach.
 */
int ring_attach_with(struct ring **ring, int memory_fd, const struct ring_reader_options *options);
/* With no options set. */
int ring_attach(struct ring **ring, int memory_fd);

/*
 * NULL is a no-op. Unmaps; a ring that other processes map lives on there. A
 * reader that held the tail holds it no more: what it has not given back is
 * for the other holders, or kept for the next one. May wait like attaching.
 */
void ring_destroy(struct ring *ring);

/*
 * The memfd, for others to map; owned by the ring. Sealed against changes of
 * its size. The eventfd that ring_flush() signals; -1 on an attached ring.
 */
int ring_memory_fd(const struct ring *ring);
int ring_event_fd(const struct ring *ring);

/* The largest payload in bytes that a record may have: a half of the ring less some headers. */
size_t ring_payload_max(const struct ring *ring);

/*
 * Reserves a record of TYPE (8 and up) with PAYLOAD bytes of payload; returns
 * the payload, 8-byte aligned, to be filled and given to ring_commit() or
 * ring_discard() on the same thread. Reservations nest, and end in any order.
 * NULL if the ring is full or the record is larger than ring_payload_max():
 * it is then counted as lost. Writer thread only, its signal handlers included.
 */
void *ring_reserve(struct ring *ring, uint16_t type, size_t payload);

/*
 * Would ring_reserve() find room for a record with PAYLOAD bytes now? If not, nothing is counted as
 * lost. In consumer mode. Writer thread only, outside of handlers.
 */
bool ring_has_room(struct ring *ring, size_t payload);

/*
 * Finish a reservation; NULL is a defined no-op. A discarded record is given
 * back if it is still the newest, and becomes padding that readers do not see
 * if another one was reserved behind it. Writer thread only, handlers included.
 */
void ring_commit(struct ring *ring, void *payload);
void ring_discard(struct ring *ring, void *payload);

/*
 * Makes readers see all records before the oldest one that is not finished.
 * No system call. Writer thread only, handlers included.
 */
void ring_publish(struct ring *ring);

/*
 * Is ring_flush() due: for what was written since the last one, or for records
 * that were dropped, perhaps for a holder that died? NOW is the time in ns by a
 * clock of the caller's choice, always the same. No system call. Writer thread
 * only, outside of handlers.
 */
bool ring_wake_due(struct ring *ring, uint64_t now);

/*
 * Tells of losses that no record followed yet, publishes, and wakes the reader
 * if there is anything new since the last wake-up: then one write() to the
 * eventfd, which never blocks. If records were dropped since the last flush, it
 * takes the tail from holders that died: a few fcntl(), which never block.
 * Writer thread only, outside of handlers.
 */
void ring_flush(struct ring *ring);

/*
 * The next unread record or NULL. It is a copy, so that what was checked
 * stays true; it belongs to the ring and is valid until the next ring_read().
 * Bytes that can be no record are skipped up to the head and counted. NULL
 * also without memory for a copy; the record is then still unread. A reader
 * that may be overrun finds an OVERRUN record where it was (in overwrite mode
 * also for what was overwritten before it attached). NULL also if it was
 * overrun many times within one call. One thread at a time.
 */
const struct ring_record *ring_read(struct ring *ring);

/* Gives back the space of all that was read, if this reader holds the tail. The reader's thread
 * only. */
void ring_read_done(struct ring *ring);

/* What a ring held at one moment: a copy, which the writer does not wait for. Belongs to the
 * caller. */
struct ring_snapshot {
	uint64_t before; /* records written before the first one here: overwritten, or read and
			    given back */
	uint64_t count;  /* records here, LOST not counted */
	bool broken;     /* ends early, at bytes that are no record */
	/* For ring_snapshot_next(). */
	size_t size;
	uint8_t *bytes;
};

/*
 * Copies all whole records from the oldest one that is there to the newest
 * that is published now: before + count = records written up to there. The
 * writer goes on meanwhile, and may overwrite the oldest while they are
 * copied; they are then counted in before. No reader loses or gains anything
 * by it. -ENOMEM; -EAGAIN if the writer overwrote all that was being copied,
 * several times, or the memory is broken. Any thread, with RING of the writer or of a reader.
 */
int ring_snapshot(const struct ring *ring, struct ring_snapshot *snapshot);

/* The record after PREVIOUS, or the first one if that is NULL; NULL at the end. Valid until the
 * snapshot is freed. */
const struct ring_record *ring_snapshot_next(const struct ring_snapshot *snapshot,
					     const struct ring_record *previous);

/* Frees what it holds, not SNAPSHOT itself. */
void ring_snapshot_free(struct ring_snapshot *snapshot);

/* Any thread. Counts are exact once the writer is quiet. */
void ring_statistics(const struct ring *ring, struct ring_statistics *statistics);

#endif
