/* SPDX-License-Identifier: Apache-2.0 */
/* A path that is built from its last component towards the root. Any thread. */
#ifndef KVMSCOPE_GUEST_LINUX_PATH_TAIL_H
#define KVMSCOPE_GUEST_LINUX_PATH_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define PATH_TAIL_MAX 4096 /* Linux PATH_MAX, including the NUL */

struct path_tail {
	char bytes[PATH_TAIL_MAX]; /* filled from the end; the path starts at START */
	size_t start;
};

/* Puts SIZE bytes in front of PATH. False if there is no room; PATH is then unchanged. */
static inline bool path_tail_prepend(struct path_tail *path, const char *bytes, size_t size)
{
	if (size > path->start)
		return false;
	path->start -= size;
	memcpy(path->bytes + path->start, bytes, size);
	return true;
}

/* Starts PATH with SUFFIX and its NUL. */
static inline void path_tail_begin(struct path_tail *path, const char *suffix)
{
	path->start = sizeof(path->bytes);
	path_tail_prepend(path, suffix, strlen(suffix) + 1);
}

static inline const char *path_tail_text(const struct path_tail *path)
{
	return path->bytes + path->start;
}

#endif
