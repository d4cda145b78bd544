/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/output_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

bool output_path_is_standard(const char *path)
{
	struct stat named, reached, standard;

	if (!strcmp(path, "-"))
		return true;
	return !lstat(path, &named) && S_ISLNK(named.st_mode) && !stat(path, &reached) &&
	       !fstat(STDOUT_FILENO, &standard) && is_same(&reached, &standard);
}

/* A link's owner controls its target: only links of root and of our own user are followed. */
static bool is_trusted(const struct stat *link)
{
	return !link->st_uid || link->st_uid == geteuid();
}

/* The regular file that the link PATH leads to; PATH itself if a parent directory is not
 * searchable. */
static bool follow(const char *path, char target[PATH_MAX])
{
	struct stat reached, named;
	bool removed;

	if (stat(path, &reached) || !S_ISREG(reached.st_mode))
		return false;
	if (!realpath(path, target)) {
		removed = errno == ENOENT;
		snprintf(target, PATH_MAX, "%s", path);
		return !removed;
	}
	return !lstat(target, &named) && is_same(&reached, &named);
}

bool output_path_is_file(const char *path, char target[PATH_MAX])
{
	struct stat named;

	if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
		return false;
	if (lstat(path, &named))
		return errno == ENOENT;
	if (!S_ISLNK(named.st_mode))
		return S_ISREG(named.st_mode);
	return !is_trusted(&named) || follow(path, target);
}
