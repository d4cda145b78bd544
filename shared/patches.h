/* SPDX-License-Identifier: Apache-2.0 */
/* Breakpoints (INT3) that this program wrote into guest memory, and the guest's original bytes, so
 * that readers of guest memory can hide the breakpoints. Another kernel may later be loaded there
 * and have an INT3 of its own at the same address. So the byte after the patch is stored, too: if
 * it differs, the patch no longer exists.
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
		list[PATCHES_MAX]; /* GPA << 16 | the byte after it << 8 | the guest's byte */
};

/* Call before INT3 is written. -ENOSPC above PATCHES_MAX. GPA must be below 2^48. NEXT, the byte
 * after it, is ignored at the end of a page, as the next page may belong to something else. */
int patches_add(struct patches *patches, uint64_t gpa, uint8_t byte, uint8_t next);

/* Removes all patches, when another kernel was loaded. */
void patches_clear(struct patches *patches);

/* True if there is a patch at GPA, where guest memory contains BYTES. */
bool patches_has(const struct patches *patches, uint64_t gpa, const uint8_t bytes[2]);

/* Replaces patches in BYTES, which were read at GPA, by the guest's bytes. NEXT is the byte after
 * BYTES, ignored at the end of a page. Bytes that the guest wrote over a patch are kept.
 */
void patches_hide(const struct patches *patches, uint64_t gpa, void *bytes, size_t size,
		  uint8_t next);

#endif
