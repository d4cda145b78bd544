/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte for the layout (or none: raw tables follow), then patches of a good image: 3 bytes
 * of offset, 1 byte of value.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kallsyms_image.c"
#include "vmm/guest/linux/kallsyms.h"

#define GVA      0xffffffff82000000ull
#define GVA_32   0xc2000000ull
#define COUNT    600
#define CAPACITY (64 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(struct span span, uint64_t gva)
{
	char name[KALLSYMS_NAME_MAX], type;
	struct kallsyms kallsyms;
	uint64_t token_index, position = 0;

	if (!kallsyms_find_token_index(span, 0, &token_index) ||
	    kallsyms_locate(&kallsyms, span, gva, token_index))
		return;
	for (uint32_t i = 0; i < kallsyms.count; i++)
		if (kallsyms_next_name(&kallsyms, &position, &type, name))
			break;
	for (unsigned int form = 0; form < 8; form++)
		if (!kallsyms_try_addresses(&kallsyms, form))
			for (uint32_t i = 0; i < kallsyms.count; i++)
				if (kallsyms_address(&kallsyms, i) - 0x10000000 <
				    (gva == GVA ? 0xffffffff70000000ull : 0xb0000000ull))
					abort(); /* neither a per-CPU nor a kernel address */
}

static size_t make_image(enum kallsyms_layout layout, uint64_t gva, uint8_t *image)
{
	static struct kallsyms_symbol symbols[COUNT];

	for (unsigned int i = 0; i < COUNT; i++) {
		symbols[i].address = gva - (16 << 20) + i * 16;
		symbols[i].type = 't';
		snprintf(symbols[i].name, sizeof(symbols[i].name), "function_%u", i);
	}
	return kallsyms_image_write(layout, symbols, COUNT, symbols[0].address, gva, image,
				    CAPACITY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t gva;
	uint8_t *image;
	size_t image_size;

	if (!size)
		return 0;
	if (*data >= KALLSYMS_LAYOUTS) {
		read_all(span_of(data + 1, size - 1), *data & 1 ? GVA : GVA_32);
		return 0;
	}
	image = malloc(CAPACITY);
	if (!image)
		abort();
	gva = *data == KALLSYMS_32BIT ? GVA_32 : GVA;
	image_size = make_image((enum kallsyms_layout) * data, gva, image);
	for (size_t at = 1; at + 4 <= size; at += 4)
		image[(data[at] | data[at + 1] << 8 | data[at + 2] << 16) % image_size] =
			data[at + 3];
	image = realloc(image, image_size);
	read_all(span_of(image, image_size), gva);
	free(image);
	return 0;
}
