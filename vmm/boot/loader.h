/* SPDX-License-Identifier: Apache-2.0 */
/* What the loaders of the single formats share: the job in hand, and how the parts beside the
 * kernel are placed. */
#ifndef KVMSCOPE_BOOT_LOADER_H
#define KVMSCOPE_BOOT_LOADER_H

#include "vmm/boot/elf_image.h"
#include "vmm/boot/kernel_boot.h"
#include "vmm/boot/kernel_file.h"

struct loader {
	const struct boot_options *options;
	const struct memory *memory;
	struct kernel_file file;
	struct elf_image elf; /* valid for the ELF formats */
	uint64_t image_end;   /* GPA behind what the kernel needs to itself; set by each loader */
	struct boot_start *start;
};

/* A file or text that stands in guest RAM. */
struct placed {
	uint64_t gpa;
	uint64_t size;
};

/*
 * One for each format: loads the kernel and everything else, fills
 * loader->start but for what cpu_tables_write() does. Errors as boot_load().
 */
int bzimage_load(struct loader *loader);
int pvh_load(struct loader *loader);
int elf64_load(struct loader *loader);
int multiboot_load(struct loader *loader);

/* Is the file one of the format, as far as its magic numbers go? */
bool bzimage_detect(struct span file);
bool multiboot_detect(struct span file);

/* Writes SIZE bytes of boot information to GPA. -EFAULT with its message where that is no RAM. */
int loader_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size);

/*
 * Loads the initrd at the highest page in low RAM that leaves no byte of it
 * above LAST and clears the kernel; *PLACED is all zero if there is none.
 */
int loader_place_initrd(const struct loader *loader, uint64_t last, struct placed *placed);

/* The same for SIZE bytes of text. */
int loader_place_text(const struct loader *loader, const char *text, uint64_t last,
		      struct placed *placed);

/*
 * Writes PREFIX and the command line to LAYOUT_COMMAND_LINE. -E2BIG if they are
 * longer than LIMIT bytes without their NUL.
 */
int loader_place_command_line(const struct loader *loader, const char *prefix, uint64_t limit);

#endif
