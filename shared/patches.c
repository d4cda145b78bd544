/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/patches.h"

#include <assert.h>
#include <errno.h>

#define GPA_SHIFT  16
#define NEXT_SHIFT 8
#define PAGE_LAST  4095u

int patches_add(struct patches *patches, uint64_t gpa, uint8_t byte, uint8_t next)
{
	unsigned int count = atomic_load(&patches->count);

	assert(gpa >> (64 - GPA_SHIFT) == 0);
	if (count == PATCHES_MAX)
		return -ENOSPC;
	atomic_store(&patches->list[count], gpa << GPA_SHIFT | (uint64_t)next << NEXT_SHIFT | byte);
	atomic_store(&patches->count, count + 1);
	return 0;
}

void patches_clear(struct patches *patches)
{
	atomic_store(&patches->count, 0);
}

static uint64_t gpa_of(uint64_t patch)
{
	return patch >> GPA_SHIFT;
}

/* True if PATCH still exists in memory with these bytes. */
static bool is_in_place(uint64_t patch, uint8_t first, uint8_t next)
{
	if (first != PATCHES_INT3)
		return false;
	return (gpa_of(patch) & PAGE_LAST) == PAGE_LAST || (uint8_t)(patch >> NEXT_SHIFT) == next;
}

bool patches_has(const struct patches *patches, uint64_t gpa, const uint8_t bytes[2])
{
	unsigned int count = atomic_load(&patches->count);

	for (unsigned int i = 0; i < count; i++) {
		uint64_t patch = atomic_load(&patches->list[i]);

		if (gpa_of(patch) == gpa)
			return is_in_place(patch, bytes[0], bytes[1]);
	}
	return false;
}

void patches_hide(const struct patches *patches, uint64_t gpa, void *bytes, size_t size,
		  uint8_t next)
{
	unsigned int count = atomic_load(&patches->count);
	uint8_t *to = bytes;

	for (unsigned int i = 0; i < count; i++) {
		uint64_t patch = atomic_load(&patches->list[i]), offset = gpa_of(patch) - gpa;

		if (offset < size &&
		    is_in_place(patch, to[offset], offset + 1 < size ? to[offset + 1] : next))
			to[offset] = (uint8_t)patch;
	}
}
