// SPDX-License-Identifier: Apache-2.0
#include "shared/patches.h"

#include <assert.h>
#include <errno.h>

int patches_add(struct patches *patches, uint64_t gpa, uint8_t byte)
{
	unsigned int count = atomic_load(&patches->count);

	assert(gpa >> 56 == 0);
	if (count == PATCHES_MAX)
		return -ENOSPC;
	atomic_store(&patches->list[count], gpa << 8 | byte);
	atomic_store(&patches->count, count + 1);
	return 0;
}

void patches_clear(struct patches *patches)
{
	atomic_store(&patches->count, 0);
}

void patches_hide(const struct patches *patches, uint64_t gpa, void *bytes, size_t size)
{
	unsigned int count = patches ? atomic_load(&patches->count) : 0;
	uint8_t *to = bytes;

	for (unsigned int i = 0; i < count; i++) {
		uint64_t patch = atomic_load(&patches->list[i]), offset = (patch >> 8) - gpa;

		if (offset < size && to[offset] == PATCHES_INT3)
			to[offset] = (uint8_t)patch;
	}
}
