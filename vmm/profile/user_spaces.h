/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a perf.data file says of user space, where samples themselves say what
 * was mapped (struct sample_mapping): readers take a mapping for there until
 * another one comes in its place, but nobody sees how a process unmaps. So
 * before each sample the file is made to say of its addresses what the sample
 * says, and of one whose mapping could not be told that nothing is there.
 * One thread at a time.
 */
#ifndef KVMSCOPE_PROFILE_USER_SPACES_H
#define KVMSCOPE_PROFILE_USER_SPACES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample.h"

struct user_spaces;

/* NULL without memory. What a guest can fill is bounded: processes too many, and mappings of one, are
 * forgotten. */
struct user_spaces *user_spaces_new(void);
void user_spaces_free(struct user_spaces *spaces); /* NULL is a no-op */

struct user_spaces_teller {
	/* Has the image of MAPPING a name? Else nothing is said of it. */
	bool (*is_named)(void *context, const struct sample_mapping *mapping);
	/* To be written before what comes behind TIME. Errors end the call that they come from, as its own.
	 */
	int (*map)(void *context, uint32_t pid, uint64_t time, const struct sample_mapping *mapping);
	int (*unmap)(void *context, uint32_t pid, uint64_t time, uint64_t start, uint64_t end);
	void *context;
};

/*
 * Tells what is to stand before SAMPLE, whose samples come in order of time. One that comes late can not be
 * told of any more: *LATE, and its user part is not to be looked up.
 */
int user_spaces_sample(struct user_spaces *spaces, const struct sample *sample,
		       const struct user_spaces_teller *teller, bool *late);

/* Takes back all that was said, as somebody else tells from TIME on. */
int user_spaces_end(struct user_spaces *spaces, uint64_t time, const struct user_spaces_teller *teller);

#endif
