/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/cfi_image.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/unwind/eh_frame.h"

#define SEGMENTS_MAX 64
#define SECTIONS_MAX 256
/* The largest known programs have about 50 MiB. */
#define SECTION_MAX (96ull << 20)
#define CHUNK       (64u << 10)

struct cfi_image {
	const struct elf_source *source;   /* only while it is read */
	Elf64_Phdr segments[SEGMENTS_MAX]; /* PT_LOAD only */
	size_t count;
	Elf64_Phdr header; /* of .eh_frame_hdr; p_filesz 0: none */
	Elf64_Ehdr elf;
	struct eh_segment code[SEGMENTS_MAX];
	struct eh_frame eh_frame;
	uint8_t *bytes[2]; /* of .eh_frame_hdr and of .eh_frame */
};

static bool is_x86_64(const Elf64_Ehdr *elf)
{
	return !memcmp(elf->e_ident, ELFMAG, SELFMAG) && elf->e_ident[EI_CLASS] == ELFCLASS64 &&
	       elf->e_ident[EI_DATA] == ELFDATA2LSB && elf->e_machine == EM_X86_64 &&
	       elf->e_phentsize == sizeof(Elf64_Phdr);
}

static int read_segments(struct cfi_image *image)
{
	const struct elf_source *source = image->source;
	Elf64_Ehdr *elf = &image->elf;
	Elf64_Phdr all[SEGMENTS_MAX];
	int error = source->read(source->context, 0, elf, sizeof(*elf));

	if (error)
		return error;
	if (!is_x86_64(elf) || elf->e_phnum > SEGMENTS_MAX || !elf->e_phnum)
		return -ENOENT;
	error = source->read(source->context, elf->e_phoff, all, elf->e_phnum * sizeof(*all));
	if (error)
		return error;
	for (size_t i = 0; i < elf->e_phnum; i++) {
		if (all[i].p_type == PT_LOAD)
			image->segments[image->count++] = all[i];
		else if (all[i].p_type == PT_GNU_EH_FRAME)
			image->header = all[i];
	}
	return 0;
}

static int read_section(const struct cfi_image *image, size_t index, Elf64_Shdr *section)
{
	return image->source->read(image->source->context,
				   image->elf.e_shoff + index * sizeof(*section), section,
				   sizeof(*section));
}

/*
 * Finds .eh_frame by its section: for gcc's static programs the linker creates no header, and so no
 * segment. -ENOENT: there is none.
 */
static int find_section(const struct cfi_image *image, Elf64_Shdr *found)
{
	static const char wanted[] = ".eh_frame";
	const struct elf_source *source = image->source;
	const Elf64_Ehdr *elf = &image->elf;
	char name[sizeof(wanted)];
	Elf64_Shdr names;
	int error;

	if (!elf->e_shoff || elf->e_shentsize != sizeof(*found) || elf->e_shnum > SECTIONS_MAX ||
	    elf->e_shstrndx >= elf->e_shnum)
		return -ENOENT;
	error = read_section(image, elf->e_shstrndx, &names);
	for (size_t i = 0; i < elf->e_shnum && !error; i++) {
		error = read_section(image, i, found);
		if (error || found->sh_name >= names.sh_size ||
		    names.sh_size - found->sh_name < sizeof(name))
			continue;
		error = source->read(source->context, names.sh_offset + found->sh_name, name,
				     sizeof(name));
		if (!error && !memcmp(name, wanted, sizeof(name)))
			return 0;
	}
	return error ? error : -ENOENT;
}

/* The range of the file from ADDRESS to the end of its segment. */
static bool find_part(const struct cfi_image *image, uint64_t address, uint64_t *offset,
		      uint64_t *size)
{
	for (size_t i = 0; i < image->count; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (address < segment->p_vaddr || address - segment->p_vaddr >= segment->p_filesz)
			continue;
		*offset = segment->p_offset + (address - segment->p_vaddr);
		*size = segment->p_filesz - (address - segment->p_vaddr);
		return true;
	}
	return false;
}

/* Reads up to SIZE bytes at ADDRESS to *BYTES, which the caller frees. */
static int read_part(const struct cfi_image *image, uint64_t address, uint64_t size,
		     uint8_t **bytes, struct span *part)
{
	uint64_t offset, left;
	int error = 0;

	if (!size || !find_part(image, address, &offset, &left))
		return -EINVAL;
	if (left < size)
		size = left;
	if (size > SECTION_MAX)
		return -E2BIG;
	*bytes = malloc(size);
	if (!*bytes)
		return -ENOMEM;
	for (uint64_t at = 0; at < size && !error; at += CHUNK)
		error = image->source->read(image->source->context, offset + at, *bytes + at,
					    size - at < CHUNK ? size - at : CHUNK);
	*part = span_of(*bytes, size);
	return error;
}

static int read_by_header(struct cfi_image *image)
{
	struct eh_frame *eh_frame = &image->eh_frame;
	int error = read_part(image, image->header.p_vaddr, image->header.p_filesz,
			      &image->bytes[0], &eh_frame->header);

	eh_frame->header_address = image->header.p_vaddr;
	if (!error)
		error = eh_frame_address(eh_frame->header, eh_frame->header_address,
					 &eh_frame->frames_address);
	if (!error)
		error = read_part(image, eh_frame->frames_address, UINT64_MAX, &image->bytes[1],
				  &eh_frame->frames);
	return error;
}

static int read_by_section(struct cfi_image *image)
{
	Elf64_Shdr section;
	int error = find_section(image, &section);

	if (error)
		return error;
	image->eh_frame.frames_address = section.sh_addr;
	return read_part(image, section.sh_addr, section.sh_size, &image->bytes[1],
			 &image->eh_frame.frames);
}

static void find_code(struct cfi_image *image)
{
	image->eh_frame.segments = image->code;
	for (size_t i = 0; i < image->count; i++)
		if (image->segments[i].p_flags & PF_X)
			image->code[image->eh_frame.segment_count++] =
				(struct eh_segment){ .address = image->segments[i].p_vaddr,
						     .offset = image->segments[i].p_offset,
						     .size = image->segments[i].p_filesz };
}

int cfi_image_read(struct cfi_image **result, const struct elf_source *source)
{
	struct cfi_image *image = calloc(1, sizeof(*image));
	int error;

	*result = NULL;
	if (!image)
		return -ENOMEM;
	image->source = source;
	error = read_segments(image);
	if (!error)
		error = image->header.p_filesz ? read_by_header(image) : read_by_section(image);
	if (error) {
		cfi_image_free(image);
		return error;
	}
	find_code(image);
	image->source = NULL;
	*result = image;
	return 0;
}

size_t cfi_image_size(const struct cfi_image *image)
{
	return image->eh_frame.frames.size;
}

int cfi_image_make(struct cfi_table **table, const struct cfi_image *image)
{
	return eh_frame_compile(table, &image->eh_frame);
}

void cfi_image_free(struct cfi_image *image)
{
	if (!image)
		return;
	free(image->bytes[0]);
	free(image->bytes[1]);
	free(image);
}

int cfi_image_compile(struct cfi_table **table, const struct elf_source *source)
{
	struct cfi_image *image;
	int error = cfi_image_read(&image, source);

	*table = NULL;
	if (error)
		return error;
	error = cfi_image_make(table, image);
	cfi_image_free(image);
	return error;
}
