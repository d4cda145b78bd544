/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table of an ELF image: of a program, a shared library or the
 * vDSO, wherever its bytes can be read from.
 */
#ifndef KVMSCOPE_GUEST_CFI_IMAGE_H
#define KVMSCOPE_GUEST_CFI_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/cfi_table.h"

struct cfi_source {
	/* Copies SIZE bytes of the file at OFFSET. 0, or -EFAULT: not all of them are at hand. */
	int (*read)(void *context, uint64_t offset, void *to, size_t size);
	void *context;
};

/*
 * Finds .eh_frame by the program headers, or by the sections where those do not name it, reads and compiles
 * it. -EFAULT: not all of it is at hand (now); -ENOENT: it is no 64-bit ELF image of x86-64, or has none;
 * -EINVAL: it contradicts itself; -E2BIG, -ENOMEM. Bounded in time and memory whatever the bytes are. Not on
 * a vCPU thread.
 */
int cfi_image_compile(struct cfi_table **table, const struct cfi_source *source);

#endif
