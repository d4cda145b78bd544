/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file to be loaded: its bytes mapped for the parsers, its bulk read
 * straight into guest RAM, so that loading costs the VMM no memory of its own.
 */
#ifndef KVMSCOPE_BOOT_KERNEL_FILE_H
#define KVMSCOPE_BOOT_KERNEL_FILE_H

#include "shared/span.h"
#include "vmm/kvm/guest_ram.h"

struct kernel_file {
	const char *path; /* for messages; not owned */
	int fd;
	struct span bytes; /* read-only mapping of the whole file */
};

/* Opens and maps PATH, which must outlive FILE. The errors of open(); -EINVAL if it is no regular
 * file or empty. */
int kernel_file_open(struct kernel_file *file, const char *path);
/* A no-op on one that could not be opened. */
void kernel_file_close(struct kernel_file *file);

/*
 * Reads [offset, offset + size) of the file to GPA. -ENOEXEC if that does not
 * lie inside the file, -ENOSPC if the place is not RAM, -EIO or the error of
 * pread(); each with its message.
 */
int kernel_file_load(const struct kernel_file *file, uint64_t offset, uint64_t size,
		     const struct memory *memory, uint64_t gpa);

#endif
