/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a guest's stripped file, from the guest's table and a separate debug file.
 * Input: the size of the table (2 bytes), the table (struct agent_symbols), then the file.
 */
#include "vmm/symbols/installed_symbols.c"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_input(void *context, uint64_t offset, void *to, size_t size)
{
	return span_copy(*(struct span *)context, offset, to, size) ? 0 : -EFAULT;
}

static void check_stubs(struct span table)
{
	struct elf_stubs stubs = { 0 };

	copy_stubs(&stubs, table);
	if (stubs.count > ELF_STUBS_MAX || stubs.size > ELF_STUBS_NAMES_MAX)
		abort();
	for (uint32_t i = 0; i < stubs.count; i++)
		if (stubs.symbols[i].st_name >= stubs.size ||
		    !memchr(stubs.strings + stubs.symbols[i].st_name, 0,
			    stubs.size - stubs.symbols[i].st_name))
			abort();
	elf_stubs_free(&stubs);
}

/* The output has the size that its header gives, followed by the sections. */
static void check_table(struct span table)
{
	struct agent_symbols head;
	struct span sections;
	uint64_t size;

	if (!span_copy(table, 0, &head, sizeof(head)) || head.segments > AGENT_SEGMENTS_MAX ||
	    head.symbols > AGENT_TABLE_MAX || head.strings > AGENT_TABLE_MAX)
		abort();
	size = sizeof(head) + head.segments * sizeof(Elf64_Phdr) + head.symbols + head.strings;
	if (table.size < size || !span_part(table, size, table.size - size, &sections) ||
	    sections.size > AGENT_SECTIONS_MAX * sizeof(struct agent_section) ||
	    sections.size % sizeof(struct agent_section))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct span input = { data, size };
	struct bytes all = { 0 };
	struct span table, separate;
	const struct elf_source file = { .read = read_input, .context = &separate };
	uint16_t table_size;

	if (!span_copy(input, 0, &table_size, sizeof(table_size)) ||
	    !span_part(input, sizeof(table_size), table_size, &table))
		return 0;
	separate = span_of(table.data + table.size, size - sizeof(table_size) - table.size);
	check_stubs(table);
	if (add_separate(&all, table, &file))
		check_table(span_of(all.data, all.size));
	free(all.data);
	return 0;
}
