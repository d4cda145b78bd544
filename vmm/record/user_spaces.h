/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a perf.data file says of user space, where samples themselves say what
 * was mapped (struct sample_mapping): readers take a mapping for there until
 * another one comes in its place, but nobody sees how a process unmaps. So
 * before each sample the file is made to say of its addresses what the sample
 * says, and of one whose mapping could not be told that nothing is there.
 *
 * Where somebody else writes mappings into the same file (the guest agent),
 * what he says stays, as long as it is what the samples say: they say what was
 * there, he what he was told, and his guest may have lost some of it. What he
 * said last of an address of which a sample says nothing holds.
 *
 * One thread at a time.
 */
#ifndef KVMSCOPE_RECORD_USER_SPACES_H
#define KVMSCOPE_RECORD_USER_SPACES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/guest/guest_account.h"

struct user_spaces;

/* NULL without memory. What a guest can fill is bounded: processes too many, and mappings of one,
 * are forgotten; what is copied as it forks is of ACCOUNT. */
struct user_spaces *user_spaces_new(struct guest_account *account);
void user_spaces_free(struct user_spaces *spaces); /* NULL is a no-op */

/* What another writer of the file says of an address. */
enum user_spaces_said {
	USER_SPACES_NOTHING, /* or nothing that is to be believed; there may be something older, and
				something else */
	USER_SPACES_SAME,    /* that it is in the mapping that is asked for */
	USER_SPACES_OTHER,   /* something else */
	USER_SPACES_UNSURE,  /* that is not known, and neither is since when */
};

struct user_spaces_teller {
	/* Has the image of MAPPING a name? Else nothing is said of it. */
	bool (*is_named)(void *context, const struct sample_mapping *mapping);
	/* To be written before what comes behind TIME. Errors end the call that they come from, as
	 * its own.
	 */
	int (*map)(void *context, uint32_t pid, uint64_t time,
		   const struct sample_mapping *mapping);
	int (*unmap)(void *context, uint32_t pid, uint64_t time, uint64_t start, uint64_t end);
	/*
	 * What the file says of ADDRESS at the sample's time, but for what is told here. *SINCE:
	 * ns, the time from which on that is so. NULL: there is nobody else.
	 */
	enum user_spaces_said (*said)(void *context, uint64_t address,
				      const struct sample_mapping *mapping, uint64_t *since);
	void *context;
};

/*
 * Tells what is to stand before SAMPLE, whose samples come in order of time. One that comes late
 * can not be told of any more: *LATE, and its user part is not to be looked up.
 */
int user_spaces_sample(struct user_spaces *spaces, const struct sample *sample,
		       const struct user_spaces_teller *teller, bool *late);

/*
 * The other one wrote that process CHILD was forked from PARENT at TIME: what the file says of the
 * parent then, it says of the child. Before the samples of later times.
 */
void user_spaces_fork(struct user_spaces *spaces, uint32_t child, uint32_t parent, uint64_t time);
/* He wrote that thread TID of PID ended at TIME. */
void user_spaces_end(struct user_spaces *spaces, uint32_t pid, uint32_t tid, uint64_t time);

/*
 * The other one, whose clock is not known exactly, tells now what PID did at TIME (ns): the time at
 * which that is to be written, which is not before what was so written of PID. What MAPS something
 * is behind the samples that are out: they are not to be read otherwise, however wrong that clock
 * is. Once for each.
 */
uint64_t user_spaces_time(struct user_spaces *spaces, uint32_t pid, uint64_t time, bool maps);
/* The same of a fork of CHILD: nor is it before what was so written of PARENT, which the child has.
 */
uint64_t user_spaces_fork_time(struct user_spaces *spaces, uint32_t child, uint32_t parent,
			       uint64_t time);

/*
 * Did a sample of PID go out, of TIME less ERROR (ns) or later, that is read by what the other one
 * told, as it says nothing itself of some address? What he tells now of TIME may be true for it, or
 * not.
 */
bool user_spaces_is_open(const struct user_spaces *spaces, uint32_t pid, uint64_t time,
			 uint32_t error);
/* TIMES become those at which the file is to be made to say that nothing is there then, in their
 * order. */
#define USER_SPACES_OPEN 3
void user_spaces_open(const struct user_spaces *spaces, uint32_t pid, uint64_t time, uint32_t error,
		      uint64_t *times);

/*
 * It was written, for a later time WRITTEN, though PID has it in RANGE, of which the bounds count,
 * since TIME: tells again what samples said since then of what is there.
 */
int user_spaces_written(struct user_spaces *spaces, uint32_t pid, uint64_t time, uint64_t written,
			const struct sample_mapping *range,
			const struct user_spaces_teller *teller);

/* Readers have been told of a new process PID: it has nothing of what was said of that id. */
void user_spaces_begin(struct user_spaces *spaces, uint32_t pid);

#endif
