/* SPDX-License-Identifier: Apache-2.0 */
/* BTF made by hand: structures, arrays and enums. For tests. */
#ifndef KVMSCOPE_TESTS_UNIT_BTF_IMAGE_H
#define KVMSCOPE_TESTS_UNIT_BTF_IMAGE_H

#include <stdint.h>

#include "shared/span.h"

#define BTF_IMAGE_SIZE 4096

/* The id of the type that exists from the start: an integer of 8 bytes. */
#define BTF_IMAGE_WORD 1u

struct btf_image {
	uint8_t types[BTF_IMAGE_SIZE / 2 - 24], strings[BTF_IMAGE_SIZE / 2];
	uint32_t types_size, strings_size;
	uint32_t count; /* of types */
	uint8_t bytes[BTF_IMAGE_SIZE];
};

struct btf_image_member {
	const char *name;
	uint32_t offset; /* bytes */
};

/* A member of any type; "": anonymous. */
struct btf_image_part {
	const char *name;
	uint32_t offset; /* bytes */
	uint32_t type;   /* its id */
};

/* Empty except BTF_IMAGE_WORD. */
void btf_image_start(struct btf_image *image);

/* The following functions add a type, and abort if it does not fit. */
/* Struct NAME of SIZE bytes. MEMBERS, all of type BTF_IMAGE_WORD, end with one without a name. */
void btf_image_add_struct(struct btf_image *image, const char *name, uint32_t size,
			  const struct btf_image_member *members);

/* Struct NAME ("": anonymous) of SIZE bytes with COUNT members. Returns its id. */
uint32_t btf_image_add_parts(struct btf_image *image, const char *name, uint32_t size,
			     const struct btf_image_part *parts, uint32_t count);
/* An array of LENGTH words. Returns its id. */
uint32_t btf_image_add_array(struct btf_image *image, uint32_t length);
/* An anonymous enum. NAMES, which end with NULL, have the values from 0 on. */
void btf_image_add_enum(struct btf_image *image, const char *const *names);

/* The current bytes, which are in IMAGE. */
struct span btf_image_finish(struct btf_image *image);

#endif
