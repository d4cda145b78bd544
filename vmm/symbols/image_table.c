// SPDX-License-Identifier: Apache-2.0
#include "vmm/symbols/image_table.h"

#include <errno.h>

static int add_part(struct bytes *table, const struct elf_source *file, uint64_t offset,
		    size_t size)
{
	size_t before = table->size;

	bytes_add_zeros(table, size);
	if (table->failed)
		return -ENOMEM;
	return size ? file->read(file->context, offset, table->data + before, size) : 0;
}

int image_table_read(struct bytes *table, const struct elf_source *file, struct elf_tables *tables,
		     struct elf_stubs *stubs)
{
	const uint32_t symbols = tables->head.symbols, strings = tables->head.strings;
	int error;

	*table = (struct bytes){ 0 };
	elf_stubs_append(stubs, tables);
	bytes_add(table, &tables->head, sizeof(tables->head));
	bytes_add(table, tables->segments, tables->head.segments * sizeof(tables->segments[0]));
	error = add_part(table, file, tables->symbols, symbols);
	bytes_add(table, stubs->symbols, stubs->count * sizeof(*stubs->symbols));
	if (!error)
		error = add_part(table, file, tables->strings, strings);
	bytes_add(table, stubs->strings, stubs->size);
	bytes_add(table, tables->sections, tables->section_count * sizeof(tables->sections[0]));
	if (!error && table->failed)
		error = -ENOMEM;
	if (error) {
		free(table->data);
		*table = (struct bytes){ 0 };
	}
	return error;
}
