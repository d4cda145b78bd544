/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/btf_image.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE 24
#define KIND_INT    (1u << 24)
#define KIND_ARRAY  (3u << 24)
#define KIND_STRUCT (4u << 24)
#define KIND_ENUM   (6u << 24)

static void append(uint8_t *to, uint32_t *size, uint32_t capacity, const void *bytes,
		   uint32_t count)
{
	if (*size + count > capacity)
		abort();
	memcpy(to + *size, bytes, count);
	*size += count;
}

static void add_words(struct btf_image *image, const uint32_t *words, uint32_t count)
{
	append(image->types, &image->types_size, sizeof(image->types), words, count * 4);
}

/* The empty name is the first: it means that there is no name. */
static uint32_t add_string(struct btf_image *image, const char *string)
{
	uint32_t at = *string ? image->strings_size : 0;

	if (*string || !image->strings_size)
		append(image->strings, &image->strings_size, sizeof(image->strings), string,
		       (uint32_t)strlen(string) + 1);
	return at;
}

static uint32_t add_type(struct btf_image *image, const char *name, uint32_t info,
			 uint32_t size_or_type)
{
	add_words(image, (uint32_t[]){ add_string(image, name), info, size_or_type }, 3);
	return ++image->count;
}

static void add_member(struct btf_image *image, const char *name, uint32_t type, uint32_t offset)
{
	add_words(image, (uint32_t[]){ add_string(image, name), type, offset * 8 }, 3);
}

void btf_image_start(struct btf_image *image)
{
	memset(image, 0, sizeof(*image));
	add_string(image, "");
	add_type(image, "long", KIND_INT, 8);
	add_words(image, &(uint32_t){ 64 }, 1);
}

void btf_image_add_struct(struct btf_image *image, const char *name, uint32_t size,
			  const struct btf_image_member *members)
{
	uint32_t count = 0;

	while (members[count].name)
		count++;
	add_type(image, name, KIND_STRUCT | count, size);
	for (uint32_t i = 0; i < count; i++)
		add_member(image, members[i].name, BTF_IMAGE_WORD, members[i].offset);
}

uint32_t btf_image_add_parts(struct btf_image *image, const char *name, uint32_t size,
			     const struct btf_image_part *parts, uint32_t count)
{
	uint32_t id = add_type(image, name, KIND_STRUCT | count, size);

	for (uint32_t i = 0; i < count; i++)
		add_member(image, parts[i].name, parts[i].type, parts[i].offset);
	return id;
}

uint32_t btf_image_add_array(struct btf_image *image, uint32_t length)
{
	uint32_t id = add_type(image, "", KIND_ARRAY, 0);

	add_words(image, (uint32_t[]){ BTF_IMAGE_WORD, BTF_IMAGE_WORD, length }, 3);
	return id;
}

void btf_image_add_enum(struct btf_image *image, const char *const *names)
{
	uint32_t count = 0;

	while (names[count])
		count++;
	add_type(image, "", KIND_ENUM | count, 4);
	for (uint32_t i = 0; i < count; i++)
		add_words(image, (uint32_t[]){ add_string(image, names[i]), i }, 2);
}

struct span btf_image_finish(struct btf_image *image)
{
	const uint32_t header[] = { 1u << 16 | 0xeb9f, HEADER_SIZE,       0,
				    image->types_size, image->types_size, image->strings_size };

	memcpy(image->bytes, header, HEADER_SIZE);
	memcpy(image->bytes + HEADER_SIZE, image->types, image->types_size);
	memcpy(image->bytes + HEADER_SIZE + image->types_size, image->strings, image->strings_size);
	return span_of(image->bytes, HEADER_SIZE + image->types_size + image->strings_size);
}
