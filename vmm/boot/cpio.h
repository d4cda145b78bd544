/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An initramfs archive in memory (cpio "newc",
 * Documentation/driver-api/early-userspace/buffer-format.rst). Linux unpacks
 * archives one behind the other, so one may stand before the user's own,
 * compressed or not, if its size is a multiple of 4.
 */
#ifndef KVMSCOPE_BOOT_CPIO_H
#define KVMSCOPE_BOOT_CPIO_H

#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

/*
 * An archive with one executable file NAME, no directory before it; its size
 * is a multiple of 4. For the caller to free(); NULL without memory.
 */
uint8_t *cpio_program(const char *name, struct span content, size_t *size);

#endif
