/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* O_PATH descriptor of a regular file. */
static int name_file(const char *path, struct stat *status)
{
	int fd = openat(AT_FDCWD, path, O_PATH | O_CLOEXEC); /* see read_stat() */

	if (fd < 0)
		return -ENOENT;
	if (fstat(fd, status) || !S_ISREG(status->st_mode)) {
		close(fd);
		return -ENOENT;
	}
	return fd;
}

static void map_files_link(const struct mapped_file *mapping, char link[80])
{
	snprintf(link, 80, "/proc/%d/map_files/%llx-%llx", mapping->pid,
		 (unsigned long long)mapping->start, (unsigned long long)mapping->end);
}

/* PATH in the root of process ROOT_OF. */
static int name_by_path(pid_t root_of, const char *path, struct stat *status)
{
	char whole[PATH_MAX + 32];

	if (*path != '/' ||
	    snprintf(whole, sizeof(whole), "/proc/%d/root%s", root_of, path) >= (int)sizeof(whole))
		return -ENOENT;
	return name_file(whole, status);
}

int mapped_file_name(const struct mapped_file *mapping, unsigned int way, struct stat *status)
{
	char link[80];

	if (way)
		return name_by_path(way == 1 ? mapping->pid : 1, mapping->path, status);
	map_files_link(mapping, link);
	return name_file(link, status);
}

/* The link's text is the kernel's current path of the mapped file. */
static bool link_is(const struct mapped_file *mapping, const char *path)
{
	char link[80], target[PATH_MAX];
	ssize_t length;

	map_files_link(mapping, link);
	length = readlink(link, target, sizeof(target) - 1);
	if (length <= 0)
		return false;
	target[length] = '\0';
	return !strcmp(target, path);
}

static bool is_device(const struct stat *status, const struct mapped_file *mapping)
{
	return major(status->st_dev) == mapping->major && minor(status->st_dev) == mapping->minor;
}

/* Does not compare the device at the mapping's addresses: for some file systems (btrfs, overlayfs)
 * stat(2) and the mapping have different ones.
 */
static bool is_it(const struct mapped_file *mapping, unsigned int way, const struct stat *status)
{
	bool inode = mapping->inode && status->st_ino == mapping->inode;

	if (way)
		return inode && is_device(status, mapping);
	return inode || link_is(mapping, mapping->path);
}

int mapped_file_find(const struct mapped_file *mapping, struct stat *status)
{
	for (unsigned int way = 0; way < MAPPED_FILE_WAYS; way++) {
		int fd = mapped_file_name(mapping, way, status);

		if (fd < 0)
			continue;
		if (is_it(mapping, way, status))
			return fd;
		close(fd);
	}
	return -ENOENT;
}

bool mapped_file_is_at_path(const struct mapped_file *mapping, struct stat *status)
{
	return *mapping->path == '/' &&
	       !fstatat(AT_FDCWD, mapping->path, status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) &&
	       S_ISREG(status->st_mode) && is_it(mapping, 1, status);
}

int mapped_file_read(int found)
{
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	fd = openat(AT_FDCWD, link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = -errno;
	close(found);
	return fd;
}
