/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/open_disks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/attach/proc_files.h"

#define SIZE_MIN (1 << 20)

/* In a mount namespace of its own, as libvirt's QEMU has, /dev may have other nodes of the same
 * devices. */
static bool is_same(const struct stat *a, const struct stat *b)
{
	if (S_ISBLK(a->st_mode) && S_ISBLK(b->st_mode))
		return a->st_rdev == b->st_rdev;
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool may_be_disk(const struct stat *status)
{
	return S_ISBLK(status->st_mode) ||
	       (S_ISREG(status->st_mode) && status->st_size >= SIZE_MIN);
}

/* Anybody can open a file with O_PATH. The link's mode shows the access mode of the descriptor:
 * proc(5), /proc/PID/fd. */
static bool is_readable(int descriptors, const char *number)
{
	struct stat link;

	return !fstatat(descriptors, number, &link, AT_SYMLINK_NOFOLLOW) && link.st_mode & S_IRUSR;
}

/* The process may see other files at its paths than we do; memory has no path. */
static bool find_path(int descriptors, const char *number, char path[PATH_MAX], struct stat *ours)
{
	struct stat theirs;
	ssize_t length = readlinkat(descriptors, number, path, PATH_MAX - 1);

	if (length <= 0 || *path != '/')
		return false;
	path[length] = '\0';
	return is_readable(descriptors, number) && !fstatat(descriptors, number, &theirs, 0) &&
	       may_be_disk(&theirs) && !stat(path, ours) && is_same(&theirs, ours);
}

/* QEMU opens a disk more than once. */
static bool is_known(const struct open_disks *disks, const char *path)
{
	for (size_t i = 0; i < disks->count; i++)
		if (!strcmp(disks->paths[i], path))
			return true;
	return false;
}

void open_disks_find(struct open_disks *disks, int directory)
{
	DIR *list = proc_open_directory(directory, "fd");
	const struct dirent *entry;

	disks->count = 0;
	if (!list)
		return;
	while (disks->count < OPEN_DISKS_MAX && (entry = readdir(list))) {
		char *path = disks->paths[disks->count];
		struct stat file;

		if (*entry->d_name == '.' || !find_path(dirfd(list), entry->d_name, path, &file) ||
		    is_known(disks, path))
			continue;
		disks->files[disks->count].device = file.st_dev;
		disks->files[disks->count++].inode = file.st_ino;
	}
	closedir(list);
}
