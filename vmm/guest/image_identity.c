/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/image_identity.h"

#include <elf.h>
#include <string.h>

#include "shared/hash.h"

#define NT_GNU_BUILD_ID 3
#define NOTES_MAX       4096u
#define HEADERS_MAX     64u

size_t build_id_in_notes(struct span notes, uint8_t *id, size_t capacity)
{
	uint32_t header[3]; /* size of name, size of description, type */
	uint64_t at = 0;

	while (span_copy(notes, at, header, sizeof(header))) {
		uint64_t name = at + sizeof(header);
		uint64_t description = name + ((header[0] + 3ull) & ~3ull);
		const char *owner = span_string(notes, name);

		if (header[2] == NT_GNU_BUILD_ID && header[0] == 4 && owner &&
		    !strcmp(owner, "GNU") && header[1] && header[1] <= capacity &&
		    span_copy(notes, description, id, header[1]))
			return header[1];
		at = description + ((header[1] + 3ull) & ~3ull);
	}
	return 0;
}

static void read_notes(struct image_identity *identity, const struct elf_source *source,
		       const Elf64_Phdr *header)
{
	_Alignas(4) uint8_t notes[NOTES_MAX];

	if (header->p_type != PT_NOTE || identity->build_id_size ||
	    header->p_filesz > sizeof(notes) ||
	    source->read(source->context, header->p_offset, notes, header->p_filesz))
		return;
	identity->build_id_size = (uint8_t)build_id_in_notes(
		span_of(notes, header->p_filesz), identity->build_id, sizeof(identity->build_id));
}

void image_identity_read(struct image_identity *identity, const struct elf_source *source)
{
	Elf64_Phdr header;
	Elf64_Ehdr elf;

	*identity = (struct image_identity){ .layout = HASH_START };
	if (source->read(source->context, 0, &elf, sizeof(elf)) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf.e_phentsize != sizeof(header))
		return;
	for (uint32_t i = 0; i < elf.e_phnum && i < HEADERS_MAX; i++) {
		if (source->read(source->context, elf.e_phoff + i * sizeof(header), &header,
				 sizeof(header))) {
			identity->build_id_size = 0;
			return;
		}
		identity->layout = hash_add_bytes(identity->layout, &header, sizeof(header));
		read_notes(identity, source, &header);
	}
}

bool image_identity_same(const struct image_identity *one, const struct image_identity *other)
{
	return one->build_id_size && one->build_id_size == other->build_id_size &&
	       !memcmp(one->build_id, other->build_id, one->build_id_size) &&
	       one->layout == other->layout;
}
