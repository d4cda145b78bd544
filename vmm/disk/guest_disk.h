/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads files from a guest's disk: a raw image or block device with ext2 to ext4, XFS or btrfs, on
 * the whole disk, in partitions or logical volumes. GRUB's file system drivers do the reading
 * (grub-fstest, Debian package grub-common): they never write, and run in a sandbox (sandbox.h).
 * The guest may change the disk meanwhile, so a file is accepted only if it is a complete ELF file
 * with the requested build id. Warns once if the kernel has no Landlock. One thread at a time.
 */
#ifndef KVMSCOPE_DISK_GUEST_DISK_H
#define KVMSCOPE_DISK_GUEST_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/span.h"

struct guest_disk;
struct sandbox_broker;

/* Larger files are refused. */
#define GUEST_DISK_FILE_MAX (512ull << 20)
/* Limit of the bytes read from one disk. */
#define GUEST_DISK_TOTAL_MAX (4ull << 30)
/* After this number of missing files, only the latest file system is searched. */
#define GUEST_DISK_MISSES_MAX 64u

struct guest_disk_limits {
	size_t file_max; /* bytes; larger files are refused */
	/* True stops reading for good. Called on the calling thread before a read, and at least
	 * every 100 ms during one. */
	bool (*is_over)(void *context);
	void *context;
	/* Reads the disk for a caller that has given up the right to (sandbox_broker.h); started
	 * for guest_disk_reader(), outlives the disk. NULL: none. */
	struct sandbox_broker *broker;
};

/*
 * Finds the file systems on the disk at PATH, within LIMITS (NULL: only those above). Errors, with
 * messages: of open(); -ENOTSUP: not a raw image; -ENODEV: no such file system; -ENOENT: no
 * grub-fstest; -ECANCELED: is_over() returned true.
 */
int guest_disk_open(struct guest_disk **disk, const char *path,
		    const struct guest_disk_limits *limits);
void guest_disk_close(struct guest_disk *disk); /* NULL is a no-op */

/* The path of grub-fstest; NULL: it is missing. */
const char *guest_disk_reader(void);

/*
 * Reads the guest's file PATH into FILE, whose data the caller frees. -ENOENT: there is none of
 * that build, or it is too large, or the disk is too slow: after one read of more than 20 s, or 60
 * s of reads without a file, a warning is logged and nothing more is read. -EINVAL: not a plain
 * absolute path.
 */
int guest_disk_read(struct guest_disk *disk, const char *path, struct span build_id,
		    struct bytes *file);

#define GUEST_DISK_VOLUMES_MAX 64u
#define GUEST_DISK_VOLUME_SIZE 64u /* of a name, NUL included */

struct guest_disk_volumes {
	char names[GUEST_DISK_VOLUMES_MAX]
		  [GUEST_DISK_VOLUME_SIZE]; /* "loop0,gpt2", "lvm/vg-root" */
	unsigned int count;
};

/* Parses LISTING, GRUB's `ls -l`, for volumes with one of the file systems. It has text from the
 * disk and is not trusted. Any thread. */
void guest_disk_volumes_read(struct guest_disk_volumes *volumes, const char *listing, size_t size);

#endif
