// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/output_path.h"

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

bool output_path_is_file(const char *path, char target[PATH_MAX])
{
	struct stat reached, named;

	if (stat(path, &reached))
		return snprintf(target, PATH_MAX, "%s", path) < PATH_MAX && lstat(path, &named);
	return S_ISREG(reached.st_mode) && realpath(path, target) && !lstat(target, &named) &&
	       is_same(&reached, &named);
}
