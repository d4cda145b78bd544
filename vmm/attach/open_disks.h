/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiB or more that are open for reading and have the same path here; nodes of block devices may
 * differ. None if the descriptors may not be inspected. The contents are not checked: the result
 * may include disks in QEMU's own formats, files that are not disks, and a file that a hostile
 * process only has the path of, if it changes its descriptors meanwhile. Any thread.
 */
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
	} files[OPEN_DISKS_MAX]; /* that was at the path; another one may replace it */
	size_t count;
};

/* Finds, in the descriptors of the process whose /proc/PID is open as DIRECTORY, block devices
 * and files of */
void open_disks_find(struct open_disks *disks, int directory);

#endif
