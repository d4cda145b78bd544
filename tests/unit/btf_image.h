/* SPDX-License-Identifier: Apache-2.0 */
/* BTF made by hand: structures with members of one word each. For tests. */
#ifndef KVMSCOPE_TESTS_BTF_IMAGE_H
#define KVMSCOPE_TESTS_BTF_IMAGE_H

#include <stdint.h>

#include "shared/span.h"

#define BTF_IMAGE_SIZE 4096

struct btf_image {
	uint8_t types[BTF_IMAGE_SIZE / 2 - 24], strings[BTF_IMAGE_SIZE / 2];
	uint32_t types_size, strings_size;
	uint8_t bytes[BTF_IMAGE_SIZE];
};

struct btf_image_member {
	const char *name;
	uint32_t offset; /* bytes */
};

/* Empty but for type 1, an integer of 8 bytes, which all members are of. */
void btf_image_start(struct btf_image *image);

/* Adds struct NAME of SIZE bytes; MEMBERS end with one without a name. Aborts where it does not fit. */
void btf_image_add_struct(struct btf_image *image, const char *name, uint32_t size,
			  const struct btf_image_member *members);

/* The bytes, in IMAGE, as they are now. */
struct span btf_image_finish(struct btf_image *image);

#endif
