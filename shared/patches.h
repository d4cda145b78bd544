/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a guest's memory that are INT3 of ours, and what the guest has
 * there: who reads the guest's memory for people to see is to see that.
 *
 *	patches_add, patches_clear	one at a time
 *	patches_hide			any thread, at the same time
 */
#ifndef KVMSCOPE_SHARED_PATCHES_H
#define KVMSCOPE_SHARED_PATCHES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PATCHES_MAX  64
#define PATCHES_INT3 0xcc

struct patches {
	_Atomic unsigned int count;
	_Atomic uint64_t list[PATCHES_MAX]; /* GPA << 8 | the guest's byte */
};

/* Before INT3 is written. -ENOSPC above PATCHES_MAX. GPA is below 2^56. */
int patches_add(struct patches *patches, uint64_t gpa, uint8_t byte);

/* When another kernel is in the guest's memory. */
void patches_clear(struct patches *patches);

/*
 * Puts the guest's bytes into BYTES, which were read at GPA. What the guest
 * has written over an INT3 of ours stays. PATCHES may be NULL.
 */
void patches_hide(const struct patches *patches, uint64_t gpa, void *bytes, size_t size);

#endif
