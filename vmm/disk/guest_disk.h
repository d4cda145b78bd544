/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files out of a guest's disks: raw images, or block devices, with ext2 to ext4, XFS or btrfs, as a
 * whole, in partitions or logical volumes. They are read by GRUB's file system drivers
 * (grub-fstest, Debian package grub-common), which never write, in a process of its own that can do
 * nothing else (sandbox.h). A disk may be in use by its guest, so what comes of it may be of no
 * moment at all: only an ELF file with the build id that was asked for, and all of it, is taken.
 * Where the kernel has no Landlock (sandbox.h), that is said once. One thread at a time.
 */
#ifndef KVMSCOPE_DISK_GUEST_DISK_H
#define KVMSCOPE_DISK_GUEST_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"

struct guest_disk;
struct sandbox_broker;

/* A larger file is not taken. */
#define GUEST_DISK_FILE_MAX (512ull << 20)
/* What is taken of a disk in all. */
#define GUEST_DISK_TOTAL_MAX (4ull << 30)
/* So many files that are nowhere on it are looked for everywhere. */
#define GUEST_DISK_MISSES_MAX 64u

/* Where somebody waits. */
struct guest_disk_limits {
	size_t file_max; /* bytes; a larger file is not taken */
	/* Asked at least every 100 ms of reading, in the calling thread: is it to end? Nothing is
	 * read any more behind that. */
	bool (*is_over)(void *context);
	void *context;
	/* Who may still read the disk, where the caller may not any more (sandbox_broker.h); NULL:
	 * nobody else. It was started for guest_disk_reader(), and outlives the disk. */
	struct sandbox_broker *broker;
};

/*
 * Looks for the file systems on the disk at PATH, within LIMITS (NULL: there are none but those
 * above). Errors, with their messages: of open(); -ENOTSUP: it is no raw image; -ENODEV: there is
 * no such file system; -ENOENT: there is no grub-fstest; -ECANCELED: is_over() said so.
 */
int guest_disk_open(struct guest_disk **disk, const char *path,
		    const struct guest_disk_limits *limits);
void guest_disk_close(struct guest_disk *disk); /* NULL is a no-op */

/* The program that reads disks; NULL: it is not there. */
const char *guest_disk_reader(void);

/*
 * The file that the guest calls PATH into FILE, whose data is the caller's to free. -ENOENT: there
 * is none of that build, or it is too large, or reading the disk once took more than 20 s, or 60 s
 * in all without a file, behind which nothing is read, which is said then; -EINVAL: PATH can be
 * none.
 */
int guest_disk_read(struct guest_disk *disk, const char *path, const uint8_t *build_id,
		    size_t build_id_size, struct bytes *file);

#endif
