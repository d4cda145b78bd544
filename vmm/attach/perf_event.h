/* SPDX-License-Identifier: Apache-2.0 */
/* The perf event that vCPU threads are sampled by: cycles where they can be counted, else the
 * clock. Any thread. */
#ifndef KVMSCOPE_ATTACH_PERF_EVENT_H
#define KVMSCOPE_ATTACH_PERF_EVENT_H

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/backend.h"

struct perf_event_choice {
	enum attach_event event;
	struct perf_event_attr
		attribute; /* of samples by CLOCK_MONOTONIC_RAW; without a sample_type */
};

/*
 * Tries it on process PID, at FREQUENCY Hz; the clock, if no other may be, with a warning where it
 * is for the frequency. -EACCES, -ENOTSUP and others of perf_event_open(), with the message.
 */
int perf_event_choose(struct perf_event_choice *choice, pid_t pid, unsigned int frequency,
		      bool clock_only);

/* Hz: events that are opened from now on have it. */
void perf_event_set_frequency(struct perf_event_choice *choice, unsigned int frequency);

/*
 * An event on thread TID, on whatever CPU it runs; the descriptor, or a negative errno without
 * message. Where the kernel has come to allow a lower frequency only
 * (kernel.perf_event_max_sample_rate), it has that one: a sample says for how much it stands.
 */
int perf_event_open_thread(const struct perf_event_attr *attribute, pid_t tid);

/* Sets the message for an ERROR of that, and returns it as backends do. */
int perf_event_explain(int error, pid_t pid);

/* A perf event of one thread and the kernel's ring of its records: perf_event_open(2). One thread
 * at a time.
 */

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
