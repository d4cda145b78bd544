/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open ELF file: its build id, and the mapping of addresses to file offsets. Files may be
 * hostile; libelf checks them. One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_ELF_FILE_H
#define KVMSCOPE_SYMBOLS_ELF_FILE_H

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

#define ELF_BUILD_ID_MAX 20

struct elf_file {
	const char *path; /* the caller's */
	int fd;
	Elf *elf;
};

/* Limits of what is read of a file, in bytes, as sparse files cost their author nothing. The
 * largest programs have a tenth of it. */
#define ELF_SYMBOLS_MAX (256ull << 20)
#define ELF_STRINGS_MAX (512ull << 20)
#define ELF_NOTES_MAX   (16ull << 20) /* all note sections or segments together */
#define ELF_DWARF_MAX   (8ull << 30)  /* all sections of a file whose DWARF is read */
#define ELF_HEADERS_MAX (1u << 20)    /* number of section headers, and of program headers */

/* Strings of a string table. */
struct elf_strings {
	const char *bytes; /* the file's */
	size_t size;       /* ends after a NUL */
};

/* Loadable segments. */
#define ELF_SEGMENTS_MAX 64
struct elf_segments {
	GElf_Phdr loaded[ELF_SEGMENTS_MAX];
	size_t count;
};

/* The errors of open(); -EINVAL: not an ELF file, or not a regular file; -EFBIG: more headers than
 * ELF_HEADERS_MAX. */
int elf_file_open(struct elf_file *file, const char *path);
/* The same for the descriptor FD, which is closed with it, but not after an error. */
int elf_file_begin(struct elf_file *file, const char *path, int fd);
void elf_file_close(struct elf_file *file);

/* Reads SIZE bytes at OFFSET of the file descriptor *FD, all or -EFAULT: the read() of struct
 * elf_source. */
int elf_file_read_at(void *fd, uint64_t offset, void *to, size_t size);

/* The content of SECTION, whose size is subtracted from *LEFT; NULL if it is larger, or unreadable.
 */
Elf_Data *elf_file_data(Elf_Scn *section, uint64_t *left);

/* The string table in section NUMBER; empty if it is unreadable or above ELF_STRINGS_MAX. */
struct elf_strings elf_file_strings(const struct elf_file *file, size_t number);
/* NULL: OFFSET is not in the table. */
static inline const char *elf_strings_at(const struct elf_strings *strings, uint64_t offset)
{
	return offset < strings->size ? strings->bytes + offset : NULL;
}

/* The sum of the sizes of all sections with content; UINT64_MAX: it overflows. */
uint64_t elf_file_content_size(const struct elf_file *file);

/* The build id's size, 0 without one. BUILD_ID holds ELF_BUILD_ID_MAX bytes. */
size_t elf_file_build_id(const struct elf_file *file, uint8_t *build_id);

/* 0 if the file has that build id (perf pads short ones with zeros) or WANTED is empty, else
 * -ESTALE. */
int elf_file_check(const struct elf_file *file, struct span wanted);

/* True if the section headers and all sections with content lie inside the file of SIZE bytes. */
bool elf_file_is_whole(const struct elf_file *file, uint64_t size);

void elf_file_segments(const struct elf_file *file, struct elf_segments *segments);

/* The file offset of ADDRESS; false: no byte of the file is mapped there. */
bool elf_segments_offset(const struct elf_segments *segments, uint64_t address, uint64_t *offset);
/* The address of OFFSET in an executable segment. */
bool elf_segments_address(const struct elf_segments *segments, uint64_t offset, uint64_t *address);

#endif
