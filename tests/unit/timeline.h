/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timelines of a simulated guest and the ground truth: processes that fork, exec, map and unmap at
 * few addresses, and exit, and whose ids and page tables are reused at once. The answers are
 * computed by brute force over all events, which shares no code with the resolver.
 */
#ifndef KVMSCOPE_TESTS_UNIT_TIMELINE_H
#define KVMSCOPE_TESTS_UNIT_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"

#define TIMELINE_PIDS  40u /* ids are 1 to this; one more is never used */
#define TIMELINE_BASE  0x400000ull
#define TIMELINE_PAGES 24u

struct timeline_event {
	uint64_t time;
	uint32_t number; /* of the image or the name; unique */
	bool begins;     /* a process that existed before is detected */
	union {
		struct sideband head;
		struct sideband_fork fork;
		struct sideband_comm comm;
		struct sideband_munmap munmap;
		struct {
			struct sideband_mmap mmap;
			char name[24];
		};
	} record;
};

/* A process from its fork or exec to its next exec or its exit. */
struct timeline_lifetime {
	uint32_t pid;
	uint64_t born, died, cr3;
};

struct timeline {
	struct timeline_event *events; /* in order of time, no two at the same */
	size_t count;
	struct timeline_lifetime *lifetimes;
	size_t lifetime_count;
	uint64_t end; /* ns, after the last event */
};

/* The running process, and what was mapped; numbers are 0 where nothing was. */
struct timeline_answer {
	uint32_t pid; /* 0: no known process */
	uint32_t comm, image;
	uint64_t offset;
};

/* A small random number generator: its state is the seed. */
uint32_t timeline_random(uint64_t *state, uint32_t below);

/* Generates a timeline of about EVENTS events, the same for the same seed. */
void timeline_make(struct timeline *timeline, uint64_t seed, size_t events);
void timeline_free(struct timeline *timeline);

/* For thread TID of process PID; PID 0: for the process of CR3. */
struct timeline_answer timeline_ask(const struct timeline *timeline, uint32_t pid, uint32_t tid,
				    uint64_t cr3, uint64_t address, uint64_t time);

#endif
