/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings, comms and programs of processes over time, from the sideband records of a perf.data
 * file, in order of time as perf sorts them (tools/perf/util/machine.c). A later mapping hides the
 * part of an earlier one that it overlaps; a forked process inherits its parent's mappings. One
 * thread at a time; memory comes from the pool.
 */
#ifndef KVMSCOPE_REPORT_PROFILE_TIMELINE_H
#define KVMSCOPE_REPORT_PROFILE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"
#include "vmm/report/history.h"

struct profile_image;

struct profile_mapping {
	uint64_t time, start, end, offset;
	struct profile_image *image;
};

/* The address space of a kernel, or of a process from its fork to its end. */
struct profile_space {
	struct history
		lifetime; /* its time is the fork's; older: earlier processes with this pid */
	uint32_t id;      /* from 0, in this timeline */
	struct profile_mapping **mappings; /* ascending by time */
	size_t count, capacity;
	struct mapping_index *index;  /* of the mappings; NULL: they are few */
	struct profile_space *parent; /* inherited mappings, or NULL */
	uint32_t parent_epoch;
};

#define PROFILE_KERNEL INT32_MIN /* used as a pid: the kernel's own space */

struct profile_timeline;

struct profile_timeline *profile_timeline_new(struct pool *pool); /* NULL without memory */
void profile_timeline_free(struct profile_timeline *timeline);    /* NULL is a no-op */

/* These add records, in any order. GUEST: the space is of a virtual machine of the recorded
 * machine. 0 or -ENOMEM. */
int profile_timeline_map(struct profile_timeline *timeline, bool guest, int32_t pid, uint64_t time,
			 uint64_t start, uint64_t size, uint64_t offset,
			 struct profile_image *image);
/* COMM must live as long as the pool. */
int profile_timeline_comm(struct profile_timeline *timeline, uint32_t tid, uint64_t time,
			  const char *comm);
/* PID executes a new program: the first file mapped after that, unless a later one is named like
 * the thread's comm at TIME. */
int profile_timeline_exec(struct profile_timeline *timeline, uint32_t pid, uint64_t time);
/* BEFORE: it started before TIME (as it does if TIME is 0), and inherits nothing. */
int profile_timeline_fork(struct profile_timeline *timeline, uint32_t pid, uint32_t tid,
			  uint32_t parent_pid, uint32_t parent_tid, uint64_t time, bool before);

/* Sorts the records. After that, lookups are allowed and more records are not. 0 or -ENOMEM. */
int profile_timeline_finish(struct profile_timeline *timeline);

/* The space of PID at TIME, or NULL if unknown. */
const struct profile_space *profile_timeline_space(const struct profile_timeline *timeline,
						   bool guest, int32_t pid, uint64_t time);
/* The number of the space's mappings made up to TIME: mappings change with this number only. */
uint32_t profile_space_epoch(const struct profile_space *space, uint64_t time);
const struct profile_mapping *profile_space_find(const struct profile_space *space, uint32_t epoch,
						 uint64_t address);
/* The program that PID ran at TIME; NULL if its start was not recorded. */
const struct profile_image *profile_timeline_program(const struct profile_timeline *timeline,
						     uint32_t pid, uint64_t time);
/* "" if unknown. */
const char *profile_timeline_comm_of(const struct profile_timeline *timeline, uint32_t tid,
				     uint64_t time);

#endif
