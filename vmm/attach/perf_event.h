/* SPDX-License-Identifier: Apache-2.0 */
/* The perf event that samples vCPU threads: the clock, or cycles. Any thread. */
#ifndef KVMSCOPE_ATTACH_PERF_EVENT_H
#define KVMSCOPE_ATTACH_PERF_EVENT_H

#include <linux/perf_event.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/backend.h"

struct perf_event_choice {
	enum attach_event event;
	struct perf_event_attr attribute; /* with CLOCK_MONOTONIC_RAW, without a sample_type */
};

/*
 * Describes EVENT and tries it on process PID at FREQUENCY Hz. -ENOTSUP: cycles cannot be counted,
 * or not without harm to VMs (mediated_pmu.h); -EACCES and others of perf_event_open(), with the
 * message.
 */
int perf_event_choose(struct perf_event_choice *choice, pid_t pid, unsigned int frequency,
		      enum attach_event event);

/* Sets the frequency, in Hz, of events that are opened later. */
void perf_event_set_frequency(struct perf_event_choice *choice, unsigned int frequency);

/*
 * Opens an event on thread TID, on any CPU. Returns the descriptor, or a negative errno without a
 * message. If the kernel has lowered kernel.perf_event_max_sample_rate, the event has that
 * frequency; the period of a sample accounts for it.
 */
int perf_event_open_thread(const struct perf_event_attr *attribute, pid_t tid);

/* Sets the message for an ERROR of perf_event_open_thread(), and returns the error of a backend. */
int perf_event_explain(int error, pid_t pid);

/* A perf event of one thread, with the kernel's ring of records: perf_event_open(2). One thread
 * at a time. */

struct perf_ring {
	int fd;
	struct perf_event_mmap_page *page; /* followed by the data */
	uint64_t size;                     /* of the data; a power of two */
	uint64_t tail;                     /* end of what was read */
	uint64_t record[65536 / 8];        /* the record read last, contiguous */
};

/* Opens an event on thread TID, on any CPU. The errors of perf_event_open() and mmap(), without
 * a message. */
int perf_ring_open(struct perf_ring *ring, const struct perf_event_attr *attribute, pid_t tid);

/* The next record, valid until the next call; NULL: none yet. */
const struct perf_event_header *perf_ring_read(struct perf_ring *ring);

/* Frees the space of the records that were read. */
void perf_ring_read_done(struct perf_ring *ring);

void perf_ring_close(struct perf_ring *ring);

#endif
