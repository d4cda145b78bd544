/* SPDX-License-Identifier: Apache-2.0 */
/* A path that is known from its end: its last name first, then what that is below. Any thread. */
#ifndef KVMSCOPE_GUEST_PATH_TAIL_H
#define KVMSCOPE_GUEST_PATH_TAIL_H

#include <stdbool.h>
#include <stddef.h>

#define PATH_TAIL_MAX 4096 /* PATH_MAX of Linux, with the NUL */

struct path_tail {
	char bytes[PATH_TAIL_MAX]; /* filled from the end: from START on */
	size_t start;
};

/* Nothing yet: not even its NUL. */
void path_tail_begin(struct path_tail *path);

/* Before what it has so far; false, and nothing happens, if there is no room for SIZE bytes more.
 */
bool path_tail_prepend(struct path_tail *path, const char *bytes, size_t size);

/* What it has so far; a string once its NUL was put into it. */
const char *path_tail_text(const struct path_tail *path);

/* Have they the same so far? */
bool path_tail_equal(const struct path_tail *one, const struct path_tail *other);

#endif
