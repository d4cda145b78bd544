/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/vmlinux_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/symbols/elf_symbols.h"

/* After struct vmlinux_file; its name follows. */
struct flat_symbol {
	uint64_t start, size;
	uint32_t type, name_size; /* with the NUL */
};

static void add_segments(struct vmlinux_file *to, const struct elf_file *file)
{
	struct elf_segments segments;

	elf_file_segments(file, &segments);
	for (size_t i = 0; i < segments.count; i++) {
		const GElf_Phdr *from = &segments.loaded[i];

		if (from->p_flags & PF_X && from->p_memsz)
			to->segments[to->segment_count++] =
				(struct kernel_segment){ from->p_vaddr, from->p_memsz,
							 from->p_offset };
	}
}

static void add_symbols(struct bytes *to, const struct symbols *symbols)
{
	const size_t count = symbols_count(symbols);
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		struct flat_symbol flat;

		symbols_at(symbols, i, &symbol);
		flat = (struct flat_symbol){ symbol.start, symbol.end - symbol.start,
					     (uint32_t)symbol.type,
					     (uint32_t)strlen(symbol.name) + 1 };
		bytes_add(to, &flat, sizeof(flat));
		bytes_add(to, symbol.name, flat.name_size);
	}
}

int vmlinux_file_flatten(struct bytes *to, int fd)
{
	struct symbols *symbols = NULL;
	struct vmlinux_file head;
	struct elf_file file;
	int error = elf_file_begin(&file, "the file", fd);

	*to = (struct bytes){ 0 };
	if (error)
		return error;
	memset(&head, 0, sizeof(head));
	error = elf_symbols_read(&symbols, &file, ELF_VIRTUAL_ADDRESSES);
	if (!error) {
		head.build_id_size = (uint32_t)elf_file_build_id(&file, head.build_id);
		add_segments(&head, &file);
		bytes_add(to, &head, sizeof(head));
		add_symbols(to, symbols);
		error = to->failed ? -ENOMEM : to->size > VMLINUX_FILE_FLAT_MAX ? -EFBIG : 0;
	}
	symbols_free(symbols);
	file.fd = -1; /* the caller's */
	elf_file_close(&file);
	return error;
}

static bool is_name(struct span name)
{
	return name.size > 1 && memchr(name.data, '\0', name.size) == name.data + name.size - 1;
}

static int parse_symbols(struct symbols *symbols, struct span rest)
{
	struct flat_symbol flat;
	struct span name;
	int error = 0;

	while (rest.size && !error) {
		if (!span_copy(rest, 0, &flat, sizeof(flat)) ||
		    !span_part(rest, sizeof(flat), flat.name_size, &name) || !is_name(name) ||
		    flat.start > UINT64_MAX - flat.size || flat.type > INT8_MAX)
			return -EINVAL;
		error = symbols_add(symbols, flat.start, flat.size, (char)flat.type,
				    (const char *)name.data, NULL);
		rest = span_of(name.data + name.size, rest.size - sizeof(flat) - name.size);
	}
	return error;
}

int vmlinux_file_parse(struct span flat, struct vmlinux_file *file, struct symbols **symbols)
{
	int error;

	if (!span_copy(flat, 0, file, sizeof(*file)) || file->build_id_size > ELF_BUILD_ID_MAX ||
	    file->segment_count > ELF_SEGMENTS_MAX)
		return -EINVAL;
	*symbols = symbols_new();
	if (!*symbols)
		return -ENOMEM;
	error = parse_symbols(*symbols,
			      span_of(flat.data + sizeof(*file), flat.size - sizeof(*file)));
	if (!error) {
		symbols_finish(*symbols);
		return 0;
	}
	symbols_free(*symbols);
	*symbols = NULL;
	return error;
}
