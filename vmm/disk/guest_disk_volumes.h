/* SPDX-License-Identifier: Apache-2.0 */
/* The file systems of a disk, out of what grub-fstest prints of it. What was on the disk stands
 * there, too: it is not believed. Any thread. */
#ifndef KVMSCOPE_DISK_GUEST_DISK_VOLUMES_H
#define KVMSCOPE_DISK_GUEST_DISK_VOLUMES_H

#include <stddef.h>

#define GUEST_DISK_VOLUMES_MAX 64u
#define GUEST_DISK_VOLUME_SIZE 64u /* bytes of a name, with its NUL */

struct guest_disk_volumes {
	char names[GUEST_DISK_VOLUMES_MAX]
		  [GUEST_DISK_VOLUME_SIZE]; /* "loop0,gpt2", "lvm/vg-root" */
	unsigned int count;
};

/* Those with ext2 to ext4, XFS or btrfs, of the SIZE bytes of LISTING (`ls -l` of GRUB). */
void guest_disk_volumes_read(struct guest_disk_volumes *volumes, const char *listing, size_t size);

#endif
