/* SPDX-License-Identifier: Apache-2.0 */
/* Examines a disk's file before the disk is read. Any thread. */
#ifndef KVMSCOPE_DISK_DISK_PROBE_H
#define KVMSCOPE_DISK_DISK_PROBE_H

#include <stddef.h>
#include <sys/types.h>

#define DISK_PROBE_START 8

/* A disk's file. Its path may lead elsewhere by now; device and inode identify the file. */
struct disk_file {
	const char *path;
	dev_t device;
	ino_t inode; /* 0: any file at PATH */
};

struct disk_probe {
	uid_t uid; /* the owner */
	gid_t gid;
	char start[DISK_PROBE_START]; /* first bytes, which tell the image format */
	size_t size;                  /* of START; less in a shorter file */
};

/*
 * Fills PROBE; keeps nothing open. The file is opened only after it was identified, and only if it
 * is a regular file or a block device: opening another device may start it. -ENOTBLK: it is
 * neither; -ESTALE: it is another file; the errors of open().
 */
int disk_probe(const struct disk_file *file, struct disk_probe *probe);

#endif
