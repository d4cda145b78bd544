/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watches of a recording, and its events of time outside of the guest: all its events but the
 * first. Watches can be added during the recording; a removed one keeps its event and its samples
 * in the file.
 *
 *	perf_data_watches_add, _set_address	one thread at a time
 *	perf_data_watches_count, _address	any thread, also at the same time
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_WATCH_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_WATCH_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Per recording, removed ones included. */
#define PERF_DATA_WATCHES_MAX 64

/* A breakpoint or a data watchpoint (PERF_TYPE_BREAKPOINT), or, with OUTSIDE, which leaves the rest
 * 0 but the name, time outside of the guest, whose samples have SAMPLE_OUTSIDE. */
struct perf_data_watch {
	bool outside;
	const char *name;         /* of the event, in perf's form: "mem:0xffffffff81a01234:w" */
	uint32_t type;            /* HW_BREAKPOINT_R, W, X of linux/hw_breakpoint.h */
	uint64_t length;          /* bytes */
	uint64_t period;          /* hits per sample */
	_Atomic uint64_t address; /* 0: not known yet; for a per-CPU variable the first vCPU's */
};

/* The counter of a watch on one vCPU since it was added. */
struct perf_data_count {
	uint64_t value;            /* hits, sampled or not */
	uint64_t enabled, running; /* ns the watch was enabled, and ns it was in a register */
};

/* Event N of the file is list[N - 1]. Zeroed: empty. */
struct perf_data_watches {
	struct perf_data_watch list[PERF_DATA_WATCHES_MAX];
	atomic_size_t count; /* of entries that are complete; only their address still changes */
};

/* 0 for NULL. */
static inline size_t perf_data_watches_count(const struct perf_data_watches *watches)
{
	return watches ? atomic_load_explicit(&watches->count, memory_order_acquire) : 0;
}

static inline uint64_t perf_data_watch_address(const struct perf_data_watch *watch)
{
	return atomic_load_explicit(&watch->address, memory_order_relaxed);
}

/* WATCH's name is not copied. The caller has checked that there is room. */
static inline void perf_data_watches_add(struct perf_data_watches *watches,
					 const struct perf_data_watch *watch)
{
	size_t count = perf_data_watches_count(watches);
	struct perf_data_watch *added = &watches->list[count];

	assert(count < PERF_DATA_WATCHES_MAX);
	added->outside = watch->outside;
	added->name = watch->name;
	added->type = watch->type;
	added->length = watch->length;
	added->period = watch->period;
	atomic_store_explicit(&added->address, perf_data_watch_address(watch),
			      memory_order_relaxed);
	atomic_store_explicit(&watches->count, count + 1, memory_order_release);
}

/* The writer puts it into the file with its next flush. */
static inline void perf_data_watches_set_address(struct perf_data_watches *watches, size_t number,
						 uint64_t address)
{
	atomic_store_explicit(&watches->list[number].address, address, memory_order_relaxed);
}

#endif
