/* SPDX-License-Identifier: Apache-2.0 */
/* ELF32 and ELF64 x86 images for a loader: segments and entry points. System V ABI, gABI
 * chapters 4 and 5. The file is not trusted. */
#ifndef KVMSCOPE_BOOT_ELF_IMAGE_H
#define KVMSCOPE_BOOT_ELF_IMAGE_H

#include <stdbool.h>

#include "vmm/boot/kernel_file.h"

#define ELF_SEGMENTS_MAX 64

/* A PT_LOAD segment that is not empty; its part of the file lies inside the file. */
struct elf_segment {
	uint64_t offset;
	uint64_t file_size;
	uint64_t memory_size; /* at least file_size */
	uint64_t physical;
	uint64_t virtual;
	bool executable;
};

struct elf_image {
	bool is_64;
	uint64_t entry; /* physical, inside a segment */
	struct elf_segment segments[ELF_SEGMENTS_MAX];
	size_t segment_count;
	bool has_pvh_entry;
	uint32_t pvh_entry;   /* of XEN_ELFNOTE_PHYS32_ENTRY, inside a segment */
	bool is_linux;        /* has a note of Linux, which vmlinux has since 4.19 */
	bool has_interpreter; /* PT_INTERP: a program, or a kernel of FreeBSD */
	bool has_symbols;     /* a symbol table of its own */
};

/* True if FILE starts with an ELF identification. Any thread. */
bool elf_image_detect(struct span file);

/* -ENOEXEC with a message unless FILE is a loadable x86 ELF. Any thread. */
int elf_image_parse(const struct kernel_file *file, struct elf_image *image);

/* Copies the segments to their physical addresses; *END is the GPA after the last one. -ENOSPC
 * or -ENOEXEC with a message. Before the guest runs. */
int elf_image_load(const struct kernel_file *file, const struct elf_image *image,
		   const struct memory *memory, uint64_t *end);

#endif
