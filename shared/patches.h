/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a guest's memory that are INT3 of ours, and what the guest has
 * there: who reads the guest's memory for people to see is to see that.
 *
 * Another kernel may come to lie there, and have INT3 of its own in such a place. So the byte
 *behind is kept too: where that is another one now, the patch is not there any more.
 *
 *	patches_add, patches_clear	one at a time
 *	the others			any thread, at the same time
 */
#ifndef KVMSCOPE_SHARED_PATCHES_H
#define KVMSCOPE_SHARED_PATCHES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATCHES_MAX  64
#define PATCHES_INT3 0xcc

struct patches {
	_Atomic unsigned int count;
	_Atomic uint64_t
		list[PATCHES_MAX]; /* GPA << 16 | the byte behind << 8 | the guest's byte */
};

/* Before INT3 is written. -ENOSPC above PATCHES_MAX. GPA is below 2^48. BEHIND is not looked at in
 * the last byte of a page: the next one may be of something else. */
int patches_add(struct patches *patches, uint64_t gpa, uint8_t byte, uint8_t behind);

/* When another kernel is in the guest's memory. */
void patches_clear(struct patches *patches);

/* Is INT3 of ours at GPA, if BYTES, which are two, are what is there? */
bool patches_has(const struct patches *patches, uint64_t gpa, const uint8_t bytes[2]);

/*
 * Puts the guest's bytes into BYTES, which were read at GPA; BEHIND is the one
 * behind them, of no meaning at the end of a page. What the guest has written over an INT3 of ours
 * stays.
 */
void patches_hide(const struct patches *patches, uint64_t gpa, void *bytes, size_t size,
		  uint8_t behind);

#endif
