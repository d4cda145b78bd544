/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file that is open, which build it is, and where in it addresses lie. Files may be hostile:
 * libelf checks them. Any one thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_ELF_FILE_H
#define KVMSCOPE_SYMBOLS_ELF_FILE_H

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_BUILD_ID_MAX 20

struct elf_file {
	const char *path; /* the caller's */
	int fd;
	Elf *elf;
};

/* Segments that are loaded: where in the file an address lies. */
struct elf_segments {
	GElf_Phdr loaded[64];
	size_t count;
};

/* The errors of open(); -EINVAL for what is no ELF file, or no regular one. */
int elf_file_open(struct elf_file *file, const char *path);
void elf_file_close(struct elf_file *file);

/* The build id's size, 0 without one. BUILD_ID holds ELF_BUILD_ID_MAX bytes. */
size_t elf_file_build_id(const struct elf_file *file, uint8_t *build_id);

/* 0 where the file has that build id (perf pads shorter ones with zeroes), or WANTED_SIZE is 0;
 * else -ESTALE.
 */
int elf_file_check(const struct elf_file *file, const uint8_t *wanted, size_t wanted_size);

/* Do the section headers, and all sections that take bytes of it, lie in the file, which has SIZE
 * bytes? */
bool elf_file_is_whole(const struct elf_file *file, uint64_t size);

void elf_file_segments(const struct elf_file *file, struct elf_segments *segments);

/* False: the address is of no byte of the file. */
bool elf_segments_offset(const struct elf_segments *segments, uint64_t address, uint64_t *offset);
/* The other way round, of code. */
bool elf_segments_address(const struct elf_segments *segments, uint64_t offset, uint64_t *address);

#endif
