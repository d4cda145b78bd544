/* SPDX-License-Identifier: Apache-2.0 */
/* A file to load: mapped for the parsers; large parts are read directly into guest RAM, so that
 * loading needs no VMM memory. */
#ifndef KVMSCOPE_BOOT_KERNEL_FILE_H
#define KVMSCOPE_BOOT_KERNEL_FILE_H

#include "shared/span.h"
#include "vmm/kvm/guest_ram.h"

struct kernel_file {
	const char *path; /* for messages; not owned */
	int fd;
	void *mapping;     /* of the whole file, read-only; owned */
	struct span bytes; /* the mapping */
};

/* Opens and maps PATH, which must outlive FILE. The errors of open(); -EINVAL if it is empty or
 * not a regular file. */
int kernel_file_open(struct kernel_file *file, const char *path);
/* A no-op on a file that failed to open. */
void kernel_file_close(struct kernel_file *file);

/* Reads [offset, offset + size) of the file to GPA. -ENOEXEC if the range exceeds the file,
 * -ENOSPC if the target is not RAM, -EIO or an errno of pread(); each with a message. */
int kernel_file_load(const struct kernel_file *file, uint64_t offset, uint64_t size,
		     const struct memory *memory, uint64_t gpa);

#endif
