/* SPDX-License-Identifier: Apache-2.0 */
/* A perf event of one thread and the kernel's ring of its records: perf_event_open(2). One thread
 * at a time.
 */
#ifndef KVMSCOPE_ATTACH_PERF_MMAP_H
#define KVMSCOPE_ATTACH_PERF_MMAP_H

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct perf_ring {
	int fd;
	struct perf_event_mmap_page *page; /* followed by the data */
	uint64_t size;                     /* of the data, a power of two */
	uint64_t tail;                     /* what lies before it was read */
	uint64_t record[65536 / 8];        /* the latest that was read: never in two parts */
};

/* An event of thread TID, on whatever CPU; the errors of perf_event_open() and mmap(), without
 * message. */
int perf_ring_open(struct perf_ring *ring, const struct perf_event_attr *attribute, pid_t tid);

/* The next record, valid until the next call; NULL: there is none yet. */
const struct perf_event_header *perf_ring_read(struct perf_ring *ring);

/* Gives back the space of what was read. */
void perf_ring_read_done(struct perf_ring *ring);

/* Of one that is open. */
void perf_ring_close(struct perf_ring *ring);

#endif
