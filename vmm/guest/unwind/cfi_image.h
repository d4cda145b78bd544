/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table of an ELF image: of a program, a shared library or the
 * vDSO, wherever its bytes can be read from.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CFI_IMAGE_H
#define KVMSCOPE_GUEST_UNWIND_CFI_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "vmm/guest/unwind/cfi_table.h"

/* What of an image its table is made from. */
struct cfi_image;

/*
 * Finds .eh_frame by the program headers, or by the sections where those do not
 * name it, and reads it. -EFAULT: not all of it is at hand (now); -ENOENT: it is no 64-bit
 * ELF image of x86-64, or has none; -EINVAL: it contradicts itself; -E2BIG, -ENOMEM. Bounded in
 * time and memory whatever the bytes are. Not on a vCPU thread.
 */
int cfi_image_read(struct cfi_image **image, const struct elf_source *source);

/* Bytes of .eh_frame: some 40 ns are needed for each. */
size_t cfi_image_size(const struct cfi_image *image);

/* Makes the table; the errors of eh_frame_compile(). Any thread that has IMAGE to itself. */
int cfi_image_make(struct cfi_table **table, const struct cfi_image *image);

/* NULL is a no-op. */
void cfi_image_free(struct cfi_image *image);

/* For tests: both at once, with the errors of both. */
int cfi_image_compile(struct cfi_table **table, const struct elf_source *source);

#endif
