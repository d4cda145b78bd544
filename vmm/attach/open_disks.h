/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a VMM has open which may be its guest's disks, by its descriptors. */
#ifndef KVMSCOPE_ATTACH_OPEN_DISKS_H
#define KVMSCOPE_ATTACH_OPEN_DISKS_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define OPEN_DISKS_MAX 8

struct open_disks {
	char paths[OPEN_DISKS_MAX][PATH_MAX];
	struct {
		dev_t device;
		ino_t inode;
	} files[OPEN_DISKS_MAX]; /* at that path; another one may come to it */
	size_t count;
};

/*
 * Of the process whose /proc/PID is open as DIRECTORY: block devices, and files of 1 MiB or more,
 * that it may read and that have the same path here as there; of a block device it may have another
 * node. None where its descriptors may not be looked at. What is in them is not looked at: a disk
 * of QEMU's own formats is among them, as may be what is no disk, and one that a hostile process
 * changes its descriptors for meanwhile, which it only has the path of. Any thread.
 */
void open_disks_find(struct open_disks *disks, int directory);

#endif
