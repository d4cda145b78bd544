/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/jit_image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shared/agent_protocol.h"

#define FIRST_ADDRESS 4096u
#define ALIGNMENT     16u
/* Readers keep file offsets in signed numbers. */
#define ADDRESSES_MAX (1ull << 46)
#define NAMES_MAX     (4u << 20) /* bytes */

static bool begin(struct jit_image *image)
{
	if (image->end)
		return true;
	if (getrandom(image->build_id, sizeof(image->build_id), 0) != sizeof(image->build_id))
		return false;
	image->build_id[sizeof(image->build_id) - 1] |=
		1; /* trailing zeros would count as padding */
	image->end = FIRST_ADDRESS;
	bytes_add(&image->strings, "", 1);
	return true;
}

/* The first one also adds an empty string. */
size_t jit_image_cost(const struct jit_image *image, const char *name)
{
	return sizeof(Elf64_Sym) + strlen(name) + 1 + !image->end;
}

bool jit_image_add(struct jit_image *image, uint64_t length, const char *name, uint64_t *address)
{
	Elf64_Sym symbol = { .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1 };

	if (!begin(image) || length > ADDRESSES_MAX - image->end ||
	    image->symbols.size + image->strings.size > NAMES_MAX)
		return false;
	symbol.st_name = (Elf64_Word)image->strings.size;
	symbol.st_value = image->end;
	symbol.st_size = length;
	bytes_add(&image->symbols, &symbol, sizeof(symbol));
	bytes_add(&image->strings, name, strlen(name) + 1);
	*address = image->end;
	image->end = (image->end + length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	image->changed = true;
	return !image->symbols.failed && !image->strings.failed;
}

/* The table in the form of the guest agent. */
static struct bytes table_of(const struct jit_image *image)
{
	const struct agent_symbols head = {
		.section = AGENT_SYMBOLS_SYMTAB,
		.segments = 1,
		.symbols = (uint32_t)image->symbols.size,
		.strings = (uint32_t)image->strings.size,
	};
	const Elf64_Phdr segment = {
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_filesz = image->end,
		.p_memsz = image->end,
	};
	struct bytes table = { 0 };

	bytes_add(&table, &head, sizeof(head));
	bytes_add(&table, &segment, sizeof(segment));
	bytes_add(&table, image->symbols.data, image->symbols.size);
	bytes_add(&table, image->strings.data, image->strings.size);
	return table;
}

void jit_image_write(struct jit_image *image, struct image_symbols *symbols)
{
	struct bytes table;

	if (!image->changed)
		return;
	table = table_of(image);
	if (!table.failed) {
		image_symbols_remove(symbols, span_of(image->build_id, sizeof(image->build_id)));
		image_symbols_add(symbols, span_of(table.data, table.size),
				  span_of(image->build_id, sizeof(image->build_id)));
		image->changed = false;
	}
	free(table.data);
}

void jit_image_free(struct jit_image *image)
{
	free(image->symbols.data);
	free(image->strings.data);
	*image = (struct jit_image){ 0 };
}
