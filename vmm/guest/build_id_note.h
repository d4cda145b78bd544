/* SPDX-License-Identifier: Apache-2.0 */
/* Build ids in ELF notes (elf(5), "Notes"): owner "GNU", type 3. */
#ifndef KVMSCOPE_GUEST_BUILD_ID_NOTE_H
#define KVMSCOPE_GUEST_BUILD_ID_NOTE_H

#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

/*
 * The first build id in NOTES, which is as in memory (4-byte alignment), into
 * ID of CAPACITY bytes. Its size, 0 if there is none that fits.
 */
size_t build_id_find(struct span notes, uint8_t *id, size_t capacity);

#endif
