/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the bytes of an ELF file: in a file, a guest's page cache or memory. */
#ifndef KVMSCOPE_SHARED_ELF_SOURCE_H
#define KVMSCOPE_SHARED_ELF_SOURCE_H

#include <stddef.h>
#include <stdint.h>

struct elf_source {
	/* Copies SIZE bytes of the file at OFFSET. 0, or -EFAULT if some are unavailable. */
	int (*read)(void *context, uint64_t offset, void *to, size_t size);
	void *context;
};

#endif
