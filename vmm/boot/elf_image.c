/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/elf_image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"

/* Xen's public/elfnote.h: a 32-bit physical entry point without paging. */
#define XEN_ELFNOTE_PHYS32_ENTRY 18

bool elf_image_detect(struct span file)
{
	return file.size >= EI_NIDENT && !memcmp(file.data, ELFMAG, SELFMAG);
}

static void widen_header(const Elf32_Ehdr *from, Elf64_Ehdr *to)
{
	*to = (Elf64_Ehdr){ .e_type = from->e_type,
			    .e_machine = from->e_machine,
			    .e_entry = from->e_entry,
			    .e_phoff = from->e_phoff,
			    .e_shoff = from->e_shoff,
			    .e_phentsize = from->e_phentsize,
			    .e_phnum = from->e_phnum,
			    .e_shentsize = from->e_shentsize,
			    .e_shnum = from->e_shnum };
}

static bool read_header(struct span file, bool is_64, Elf64_Ehdr *header)
{
	Elf32_Ehdr narrow;

	if (is_64)
		return span_copy(file, 0, header, sizeof(*header));
	if (!span_copy(file, 0, &narrow, sizeof(narrow)))
		return false;
	widen_header(&narrow, header);
	return true;
}

static bool read_program_header(struct span file, bool is_64, uint64_t offset, Elf64_Phdr *header)
{
	Elf32_Phdr narrow;

	if (is_64)
		return span_copy(file, offset, header, sizeof(*header));
	if (!span_copy(file, offset, &narrow, sizeof(narrow)))
		return false;
	*header = (Elf64_Phdr){ .p_type = narrow.p_type,
				.p_flags = narrow.p_flags,
				.p_offset = narrow.p_offset,
				.p_vaddr = narrow.p_vaddr,
				.p_paddr = narrow.p_paddr,
				.p_filesz = narrow.p_filesz,
				.p_memsz = narrow.p_memsz,
				.p_align = narrow.p_align };
	return true;
}

static int check_header(const struct kernel_file *file, bool is_64, const Elf64_Ehdr *header)
{
	size_t size = is_64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);

	if (file->bytes.data[EI_DATA] != ELFDATA2LSB ||
	    (header->e_machine != EM_X86_64 && header->e_machine != EM_386))
		return error_set(-ENOEXEC,
				 "%s is an ELF for another machine (e_machine %u); x86 is needed",
				 file->path, header->e_machine);
	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return error_set(-ENOEXEC, "%s is an ELF of type %u, not a linked image",
				 file->path, header->e_type);
	if (header->e_phnum == 0 || header->e_phentsize != size)
		return error_set(-ENOEXEC, "%s: broken ELF: %u program headers of %u bytes",
				 file->path, header->e_phnum, header->e_phentsize);
	return 0;
}

static int check_segment(const struct kernel_file *file, const Elf64_Phdr *header)
{
	if (!span_contains(file->bytes, header->p_offset, header->p_filesz))
		return error_set(
			-ENOEXEC,
			"%s is truncated: a segment's %llu bytes at offset %llu are not in it",
			file->path, (unsigned long long)header->p_filesz,
			(unsigned long long)header->p_offset);
	if (header->p_filesz > header->p_memsz)
		return error_set(-ENOEXEC,
				 "%s: broken ELF: a segment of %llu bytes has %llu in the file",
				 file->path, (unsigned long long)header->p_memsz,
				 (unsigned long long)header->p_filesz);
	if (header->p_memsz > LAYOUT_MAPPED || header->p_paddr > LAYOUT_MAPPED - header->p_memsz)
		return error_set(
			-ENOEXEC,
			"%s has a segment of %#llx bytes at %#llx; it must lie below 4 GiB",
			file->path, (unsigned long long)header->p_memsz,
			(unsigned long long)header->p_paddr);
	return 0;
}

static int add_segment(const struct kernel_file *file, const Elf64_Phdr *header,
		       struct elf_image *image)
{
	int error;

	if (header->p_memsz == 0)
		return 0;
	error = check_segment(file, header);
	if (error)
		return error;
	if (image->segment_count == ELF_SEGMENTS_MAX)
		return error_set(-ENOEXEC, "%s has more than %d segments to load", file->path,
				 ELF_SEGMENTS_MAX);
	image->segments[image->segment_count++] = (struct elf_segment){
		.offset = header->p_offset,
		.file_size = header->p_filesz,
		.memory_size = header->p_memsz,
		.physical = header->p_paddr,
		.virtual = header->p_vaddr,
		.executable = header->p_flags & PF_X,
	};
	return 0;
}

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

static bool read_entry_note(struct span notes, uint64_t offset, uint32_t size, uint32_t *entry)
{
	uint64_t wide;

	if (size == sizeof(wide) && span_u64(notes, offset, &wide) && wide <= UINT32_MAX) {
		*entry = (uint32_t)wide;
		return true;
	}
	return size == sizeof(*entry) && span_u32(notes, offset, entry);
}

static bool has_name(struct span notes, uint64_t offset, const Elf64_Nhdr *note, const char *name)
{
	struct span bytes;

	return note->n_namesz == strlen(name) + 1 &&
	       span_part(notes, offset + sizeof(*note), note->n_namesz, &bytes) &&
	       !memcmp(bytes.data, name, bytes.size);
}

static void read_notes(struct span notes, uint64_t alignment, struct elf_image *image)
{
	Elf64_Nhdr note; /* the same in both classes */
	uint64_t offset = 0;

	while (span_copy(notes, offset, &note, sizeof(note))) {
		uint64_t description =
			offset + align_up(sizeof(note) + (uint64_t)note.n_namesz, alignment);

		image->is_linux |= has_name(notes, offset, &note, "Linux");
		if (!image->has_pvh_entry && note.n_type == XEN_ELFNOTE_PHYS32_ENTRY &&
		    has_name(notes, offset, &note, "Xen"))
			image->has_pvh_entry = read_entry_note(notes, description, note.n_descsz,
							       &image->pvh_entry);
		offset = description + align_up(note.n_descsz, alignment);
	}
}

/* Linux pads notes to 4 bytes regardless of p_align; others follow p_align. */
static void add_notes(const struct kernel_file *file, const Elf64_Phdr *header,
		      struct elf_image *image)
{
	struct span notes;

	if (!span_part(file->bytes, header->p_offset, header->p_filesz, &notes))
		return;
	read_notes(notes, 4, image);
	if (header->p_align == 8)
		read_notes(notes, 8, image);
}

static int read_segments(const struct kernel_file *file, const Elf64_Ehdr *header,
			 struct elf_image *image)
{
	for (unsigned int i = 0; i < header->e_phnum; i++) {
		uint64_t offset = (uint64_t)i * header->e_phentsize;
		Elf64_Phdr program;
		int error = 0;

		if (header->e_phoff > file->bytes.size ||
		    !read_program_header(file->bytes, image->is_64, header->e_phoff + offset,
					 &program))
			return error_set(-ENOEXEC,
					 "%s is truncated: its program headers are not in it",
					 file->path);
		if (program.p_type == PT_LOAD)
			error = add_segment(file, &program, image);
		else if (program.p_type == PT_NOTE)
			add_notes(file, &program, image);
		image->has_interpreter |= program.p_type == PT_INTERP;
		if (error)
			return error;
	}
	if (image->segment_count == 0)
		return error_set(-ENOEXEC, "%s has nothing to load", file->path);
	return 0;
}

static bool is_loaded(const struct elf_image *image, uint64_t physical)
{
	for (size_t i = 0; i < image->segment_count; i++)
		if (physical - image->segments[i].physical < image->segments[i].memory_size)
			return true;
	return false;
}

/* e_entry is physical in kernels, but may be virtual if the linker did not track physical
 * addresses. */
static int find_entry(const struct kernel_file *file, const Elf64_Ehdr *header,
		      struct elf_image *image)
{
	image->entry = header->e_entry;
	for (size_t i = 0; i < image->segment_count && !is_loaded(image, image->entry); i++) {
		const struct elf_segment *segment = &image->segments[i];
		uint64_t offset = header->e_entry - segment->virtual;

		if (segment->executable && offset < segment->file_size)
			image->entry = segment->physical + offset;
	}
	if (!is_loaded(image, image->entry))
		return error_set(-ENOEXEC, "%s: broken ELF: its entry %#llx is in no segment",
				 file->path, (unsigned long long)header->e_entry);
	if (image->has_pvh_entry && !is_loaded(image, image->pvh_entry))
		return error_set(-ENOEXEC, "%s: broken ELF: its PVH entry %#x is in no segment",
				 file->path, image->pvh_entry);
	return 0;
}

static bool has_symbols(struct span file, bool is_64, const Elf64_Ehdr *header)
{
	uint64_t size = is_64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
	uint64_t type = is_64 ? offsetof(Elf64_Shdr, sh_type) : offsetof(Elf32_Shdr, sh_type);

	if (header->e_shentsize != size || header->e_shoff > file.size)
		return false;
	for (unsigned int i = 0; i < header->e_shnum; i++) {
		uint32_t value;

		if (span_u32(file, header->e_shoff + i * size + type, &value) &&
		    value == SHT_SYMTAB)
			return true;
	}
	return false;
}

int elf_image_parse(const struct kernel_file *file, struct elf_image *image)
{
	Elf64_Ehdr header;
	int error;

	*image = (struct elf_image){ 0 };
	if (!elf_image_detect(file->bytes))
		return error_set(-ENOEXEC, "%s is not an ELF file", file->path);
	image->is_64 = file->bytes.data[EI_CLASS] == ELFCLASS64;
	if (!read_header(file->bytes, image->is_64, &header))
		return error_set(-ENOEXEC,
				 "%s is truncated: an ELF header has more than its %zu bytes",
				 file->path, file->bytes.size);
	error = check_header(file, image->is_64, &header);
	if (!error)
		error = read_segments(file, &header, image);
	if (!error)
		error = find_entry(file, &header, image);
	if (!error)
		image->has_symbols = has_symbols(file->bytes, image->is_64, &header);
	return error;
}

int elf_image_load(const struct kernel_file *file, const struct elf_image *image,
		   const struct memory *memory, uint64_t *end)
{
	*end = 0;
	for (size_t i = 0; i < image->segment_count; i++) {
		const struct elf_segment *segment = &image->segments[i];
		uint64_t segment_end = segment->physical + segment->memory_size;
		int error;

		if (!memory_pointer(memory, segment->physical, segment->memory_size))
			return error_set(
				-ENOSPC,
				"%s does not fit: it needs guest RAM up to %llu MiB; give the guest more memory",
				file->path, (unsigned long long)(segment_end + 0xfffff) >> 20);
		/* bytes after file_size are zero already: the RAM is new */
		error = kernel_file_load(file, segment->offset, segment->file_size, memory,
					 segment->physical);
		if (error)
			return error;
		if (segment_end > *end)
			*end = segment_end;
	}
	return 0;
}
