/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/mapped_build_id.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include "shared/span.h"

#define SEGMENTS_MAX 64
#define NOTES_MAX    4096

/* System V ABI, chapter 5, "Note Section"; names and descriptions are padded to 4 bytes. */
size_t build_id_find(const void *bytes, size_t size, uint8_t build_id[BUILD_ID_MAX])
{
	struct span notes = span_of(bytes, size);
	uint64_t offset = 0;
	Elf64_Nhdr note;

	while (span_copy(notes, offset, &note, sizeof(note))) {
		uint64_t name = offset + sizeof(note);
		uint64_t description = name + ((uint64_t)note.n_namesz + 3) / 4 * 4;

		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    note.n_descsz <= BUILD_ID_MAX && span_contains(notes, name, 4) &&
		    !memcmp(notes.data + name, "GNU", 4) &&
		    span_copy(notes, description, build_id, note.n_descsz))
			return note.n_descsz;
		offset = description + ((uint64_t)note.n_descsz + 3) / 4 * 4;
	}
	return 0;
}

static size_t read_segment(int fd, const Elf64_Phdr *segment, uint8_t build_id[BUILD_ID_MAX])
{
	uint8_t notes[NOTES_MAX];
	size_t wanted = segment->p_filesz < sizeof(notes) ? segment->p_filesz : sizeof(notes);
	ssize_t size = pread(fd, notes, wanted, (off_t)segment->p_offset);

	return size > 0 ? build_id_find(notes, (size_t)size, build_id) : 0;
}

size_t build_id_read(int fd, uint8_t build_id[BUILD_ID_MAX])
{
	Elf64_Phdr segments[SEGMENTS_MAX];
	Elf64_Ehdr header;
	size_t found = 0;
	ssize_t size;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(segments[0]))
		return 0;
	size = pread(fd, segments, sizeof(segments), (off_t)header.e_phoff);
	for (size_t i = 0; i < header.e_phnum &&
			   (i + 1) * sizeof(segments[0]) <= (size_t)(size > 0 ? size : 0) && !found;
	     i++)
		if (segments[i].p_type == PT_NOTE)
			found = read_segment(fd, &segments[i], build_id);
	return found;
}
