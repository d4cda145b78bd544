// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/path_tail.h"

#include <string.h>

void path_tail_begin(struct path_tail *path)
{
	path->start = sizeof(path->bytes);
}

bool path_tail_prepend(struct path_tail *path, const char *bytes, size_t size)
{
	if (size > path->start)
		return false;
	path->start -= size;
	memcpy(path->bytes + path->start, bytes, size);
	return true;
}

const char *path_tail_text(const struct path_tail *path)
{
	return path->bytes + path->start;
}

bool path_tail_equal(const struct path_tail *one, const struct path_tail *other)
{
	return one->start == other->start &&
	       !memcmp(path_tail_text(one), path_tail_text(other), sizeof(one->bytes) - one->start);
}
