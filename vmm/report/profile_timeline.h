/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who was mapped where, and called what, at which time: what the sideband
 * records of a perf.data file say, put in order of time as perf puts them
 * (tools/perf/util/machine.c). A later mapping hides what it overlaps of an
 * earlier one; a forked process begins with its parent's mappings.
 * One thread at a time; memory comes from the pool.
 */
#ifndef KVMSCOPE_REPORT_PROFILE_TIMELINE_H
#define KVMSCOPE_REPORT_PROFILE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"

struct profile_image;

struct profile_mapping {
	uint64_t time, start, end, offset;
	struct profile_image *image;
	struct profile_mapping *next; /* of the same space, older */
	uint32_t epoch;               /* how many mappings its space had with it */
};

/* A kernel's address space, or a process's from its fork to its end. */
struct profile_space {
	uint32_t id; /* from 0, in this timeline */
	uint64_t born;
	struct profile_mapping *latest;
	uint64_t *times; /* of its mappings, ascending */
	uint32_t count, capacity;
	struct profile_space *parent; /* what was mapped at the fork, or NULL */
	uint32_t parent_epoch;
	struct profile_space *older; /* the pid's earlier owner */
};

#define PROFILE_KERNEL INT32_MIN /* in place of a pid: the kernel's own space */

struct profile_timeline;

struct profile_timeline *profile_timeline_new(struct pool *pool); /* NULL without memory */
/* NULL is a no-op. */
void profile_timeline_free(struct profile_timeline *timeline);

/* Take records in any order. GUEST tells the spaces of a machine in the machine from its own. 0 or
 * -ENOMEM.
 */
int profile_timeline_map(struct profile_timeline *timeline, bool guest, int32_t pid, uint64_t time,
			 uint64_t start, uint64_t size, uint64_t offset,
			 struct profile_image *image);
/* COMM must live as long as the pool. */
int profile_timeline_comm(struct profile_timeline *timeline, uint32_t tid, uint64_t time,
			  const char *comm);
/*
 * PID runs a new program: the first file that is mapped into it from now on; if that is the program
 * before, a later one whose name the thread has at TIME, where there is one.
 */
int profile_timeline_exec(struct profile_timeline *timeline, uint32_t pid, uint64_t time);
/* BEFORE: it began before TIME (as it does if that is 0), and has nothing of its parent's. */
int profile_timeline_fork(struct profile_timeline *timeline, uint32_t pid, uint32_t tid,
			  uint32_t parent_pid, uint32_t parent_tid, uint64_t time, bool before);

/* Puts all in order; from here on there may be questions, and no more records. 0 or -ENOMEM. */
int profile_timeline_finish(struct profile_timeline *timeline);

/* The space of PID at TIME, or NULL where nothing is known of it. */
const struct profile_space *profile_timeline_space(const struct profile_timeline *timeline,
						   bool guest, int32_t pid, uint64_t time);
/* How many of the space's mappings are made at TIME: what is mapped changes with this number only.
 */
uint32_t profile_space_epoch(const struct profile_space *space, uint64_t time);
const struct profile_mapping *profile_space_find(const struct profile_space *space, uint32_t epoch,
						 uint64_t address);
/* The program that PID ran at TIME; NULL where it is not known: its beginning was not recorded. */
const struct profile_image *profile_timeline_program(const struct profile_timeline *timeline,
						     uint32_t pid, uint64_t time);
/* "" where it is not known. */
const char *profile_timeline_comm_of(const struct profile_timeline *timeline, uint32_t tid,
				     uint64_t time);

#endif
