/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(const struct disk_file *place, const struct stat *status)
{
	if (place->inode && (status->st_ino != place->inode || status->st_dev != place->device))
		return -ESTALE;
	return S_ISREG(status->st_mode) || S_ISBLK(status->st_mode) ? 0 : -ENOTBLK;
}

/* The very file, wherever its path leads by now. */
static int read_start(int found, struct disk_probe *look)
{
	char path[32];
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	size = pread(fd, look->start, sizeof(look->start), 0);
	look->size = size > 0 ? (size_t)size : 0;
	close(fd);
	return 0;
}

int disk_probe(const struct disk_file *place, struct disk_probe *look)
{
	int found = open(place->path, O_PATH | O_CLOEXEC);
	struct stat status;
	int error;

	*look = (struct disk_probe){ 0 };
	if (found < 0)
		return -errno;
	error = fstat(found, &status) ? -errno : check(place, &status);
	if (!error) {
		look->uid = status.st_uid;
		look->gid = status.st_gid;
		error = read_start(found, look);
	}
	close(found);
	return error;
}
