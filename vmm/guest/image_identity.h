/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity of an ELF image: its build id and the layout of its segments. The build id alone is not
 * enough, because tools that move segments afterwards (patchelf) keep it.
 */
#ifndef KVMSCOPE_GUEST_IMAGE_IDENTITY_H
#define KVMSCOPE_GUEST_IMAGE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "shared/span.h"

#define IMAGE_BUILD_ID_MAX 20

struct image_identity {
	uint8_t build_id[IMAGE_BUILD_ID_MAX];
	uint8_t build_id_size; /* bytes; 0: none, or not readable */
	uint64_t layout;       /* hash of the program headers */
};

/* 64-bit images only. Bounded in time for any content. */
void image_identity_read(struct image_identity *identity, const struct elf_source *source);

/* True if file offsets in one image are valid in the other. False without build ids. */
bool image_identity_same(const struct image_identity *one, const struct image_identity *other);

/*
 * Copies the first build id in the ELF notes NOTES (elf(5), "Notes": owner "GNU", type 3; 4-byte
 * alignment, as in memory) to ID of CAPACITY bytes. Returns its size, 0 if none fits.
 */
size_t build_id_in_notes(struct span notes, uint8_t *id, size_t capacity);

#endif
