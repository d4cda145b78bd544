/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which build of which ELF image a file is, and where its parts lie in it: a
 * build id is kept by those who move parts afterwards (patchelf).
 */
#ifndef KVMSCOPE_GUEST_IMAGE_IDENTITY_H
#define KVMSCOPE_GUEST_IMAGE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/elf_source.h"

#define IMAGE_BUILD_ID_MAX 20

struct image_identity {
	uint8_t build_id[IMAGE_BUILD_ID_MAX];
	uint8_t build_id_size; /* bytes; 0: it has none, or it can not be read */
	uint64_t layout;       /* hash of its program headers */
};

/* Of 64-bit images. Bounded in time whatever the bytes are. */
void image_identity_read(struct image_identity *identity, const struct elf_source *source);

/* Is what is known of one by its file offsets true of the other? Not without a build id. */
bool image_identity_same(const struct image_identity *one, const struct image_identity *other);

#endif
