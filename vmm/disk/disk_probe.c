/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(const struct disk_file *file, const struct stat *status)
{
	if (file->inode && (status->st_ino != file->inode || status->st_dev != file->device))
		return -ESTALE;
	return S_ISREG(status->st_mode) || S_ISBLK(status->st_mode) ? 0 : -ENOTBLK;
}

/* Opens the identified file itself, wherever its path leads by now. */
static int read_start(int found, struct disk_probe *probe)
{
	char path[32];
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	size = pread(fd, probe->start, sizeof(probe->start), 0);
	probe->size = size > 0 ? (size_t)size : 0;
	close(fd);
	return 0;
}

int disk_probe(const struct disk_file *file, struct disk_probe *probe)
{
	int found = open(file->path, O_PATH | O_CLOEXEC);
	struct stat status;
	int error;

	*probe = (struct disk_probe){ 0 };
	if (found < 0)
		return -errno;
	error = fstat(found, &status) ? -errno : check(file, &status);
	if (!error) {
		probe->uid = status.st_uid;
		probe->gid = status.st_gid;
		error = read_start(found, probe);
	}
	close(found);
	return error;
}
