/* SPDX-License-Identifier: Apache-2.0 */
/* What has to be known of a disk's file before anybody reads the disk. */
#ifndef KVMSCOPE_DISK_DISK_PROBE_H
#define KVMSCOPE_DISK_DISK_PROBE_H

#include <stddef.h>
#include <sys/types.h>

#define DISK_PROBE_START 8

/* A file by its path. The path may lead elsewhere by now: that it is the file still is told by the
 * others. */
struct disk_file {
	const char *path;
	dev_t device;
	ino_t inode; /* 0: whichever file is there */
};

struct disk_probe {
	uid_t uid; /* the owner's */
	gid_t gid;
	char start[DISK_PROBE_START]; /* how it begins: which format it has */
	size_t size; /* of that, bytes; less than it could be where the file is shorter */
};

/*
 * Looks at the file and keeps nothing of it open. Any thread. A file is opened only once it is
 * known to be the one that is meant, and of those that opening does nothing to: a device may be
 * started by it. -ENOTBLK: it is neither a file nor a block device; -ESTALE: it is another one than
 * is meant; else the errors of open().
 */
int disk_probe(const struct disk_file *place, struct disk_probe *look);

#endif
