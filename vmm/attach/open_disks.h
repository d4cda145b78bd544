/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of a VM, as far as its process has them open. Any thread. */
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
	} files[OPEN_DISKS_MAX]; /* at the paths now; other files may replace them */
	size_t count;
};

/*
 * Finds block devices and files of at least 1 MiB among the descriptors of the process whose
 * /proc/PID is open as DIRECTORY: those that are open for reading and have the same path here;
 * nodes of block devices may differ. Finds none if the descriptors may not be inspected.
 *
 * The contents are not checked. The result may include disks in QEMU's own formats and files that
 * are not disks. A hostile process that changes its descriptors meanwhile can add a file that it
 * may not read.
 */
void open_disks_find(struct open_disks *disks, int directory);

#endif
