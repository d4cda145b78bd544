/* SPDX-License-Identifier: Apache-2.0 */
/* The unwind table of an ELF image: a program, a shared library or the vDSO, from any source. */
#ifndef KVMSCOPE_GUEST_UNWIND_CFI_IMAGE_H
#define KVMSCOPE_GUEST_UNWIND_CFI_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "vmm/guest/unwind/cfi_table.h"

/* The parts of an image that its table is compiled from. */
struct cfi_image;

/*
 * Reads .eh_frame, found by the program headers, or by the sections if those do not have it.
 * -EFAULT: not all of it is available (now); -ENOENT: not a 64-bit ELF image of x86-64, or without
 * .eh_frame; -EINVAL: inconsistent headers; -E2BIG, -ENOMEM. Bounded in time and memory for any
 * content. Not on a vCPU thread.
 */
int cfi_image_read(struct cfi_image **image, const struct elf_source *source);

/* Bytes of .eh_frame: compiling takes about 40 ns for each. */
size_t cfi_image_size(const struct cfi_image *image);

/* Compiles the table; errors as of eh_frame_compile(). One thread at a time for an IMAGE. */
int cfi_image_make(struct cfi_table **table, const struct cfi_image *image);

/* NULL is a no-op. */
void cfi_image_free(struct cfi_image *image);

/* Both in one call, with the errors of both; for tests. */
int cfi_image_compile(struct cfi_table **table, const struct elf_source *source);

#endif
