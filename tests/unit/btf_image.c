/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/btf_image.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE 24
#define KIND_INT    (1u << 24)
#define KIND_STRUCT (4u << 24)

static void append(uint8_t *to, uint32_t *size, uint32_t capacity, const void *bytes, uint32_t count)
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

static uint32_t add_string(struct btf_image *image, const char *string)
{
	uint32_t at = image->strings_size;

	append(image->strings, &image->strings_size, sizeof(image->strings), string,
	       (uint32_t)strlen(string) + 1);
	return at;
}

void btf_image_start(struct btf_image *image)
{
	memset(image, 0, sizeof(*image));
	add_string(image, "");
	add_words(image, (uint32_t[]){ add_string(image, "long"), KIND_INT, 8, 64 }, 4);
}

void btf_image_add_struct(struct btf_image *image, const char *name, uint32_t size,
			  const struct btf_image_member *members)
{
	uint32_t count = 0;

	while (members[count].name)
		count++;
	add_words(image, (uint32_t[]){ add_string(image, name), KIND_STRUCT | count, size }, 3);
	for (uint32_t i = 0; i < count; i++)
		add_words(image, (uint32_t[]){ add_string(image, members[i].name), 1, members[i].offset * 8 },
			  3);
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
