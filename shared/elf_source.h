/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF file, wherever its bytes can be read from: a file, a guest's page cache, memory. */
#ifndef KVMSCOPE_SHARED_ELF_SOURCE_H
#define KVMSCOPE_SHARED_ELF_SOURCE_H

#include <stddef.h>
#include <stdint.h>

struct elf_source {
	/* Copies SIZE bytes of the file at OFFSET. 0, or -EFAULT: not all of them are at hand. */
	int (*read)(void *context, uint64_t offset, void *to, size_t size);
	void *context;
};

#endif
