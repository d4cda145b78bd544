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

/* Loadable segments. */
struct elf_segments {
	GElf_Phdr loaded[64];
	size_t count;
};

/* The errors of open(); -EINVAL: not an ELF file, or not a regular file. */
int elf_file_open(struct elf_file *file, const char *path);
void elf_file_close(struct elf_file *file);

/* Reads SIZE bytes at OFFSET of the file descriptor *FD, all or -EFAULT: the read() of struct
 * elf_source. */
int elf_file_read_at(void *fd, uint64_t offset, void *to, size_t size);

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
