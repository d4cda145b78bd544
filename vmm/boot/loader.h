/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the loaders of all formats: their state, and the placement of everything but the
 * kernel. */
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
	uint64_t low;         /* GPA of the block of address_map.h */
	uint64_t image_end;   /* GPA after the memory that the kernel needs; each loader sets it */
	struct boot_start *start;
};

/* A file or text in guest RAM. */
struct placed {
	uint64_t gpa;
	uint64_t size;
};

/* One loader for each format: loads the kernel and everything else, and fills loader->start
 * except for GDT, page tables and stack. Errors as for boot_load(). */
int bzimage_load(struct loader *loader);
int pvh_load(struct loader *loader);
int elf64_load(struct loader *loader);
int multiboot_load(struct loader *loader);

/* True if the file has the magic numbers of the format. */
bool bzimage_detect(struct span file);
bool multiboot_detect(struct span file);

/* Sets `low` to a block that does not overlap the COUNT SEGMENTS of the kernel, of which GPAs and
 * sizes are used. -ENOEXEC if one is where no kernel may be, -ENOSPC without room. */
int loader_place_low(struct loader *loader, const struct elf_segment *segments, size_t count);

/* The same for loader->elf, and loads it. */
int loader_load_elf(struct loader *loader);

/* Writes SIZE bytes of boot information to GPA. -EFAULT with a message if that is not RAM. */
int loader_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size);

/* Loads the initrd to the highest page of low RAM that keeps it above the kernel and below LAST
 * + 1. *PLACED is all zero without an initrd. */
int loader_place_initrd(const struct loader *loader, uint64_t last, struct placed *placed);

/* The same for SIZE bytes of text. */
int loader_place_text(const struct loader *loader, const char *text, uint64_t last,
		      struct placed *placed);

/* Writes PREFIX and the command line to its place in the block. -E2BIG if they exceed LIMIT bytes,
 * NUL not counted. */
int loader_place_command_line(const struct loader *loader, const char *prefix, uint64_t limit);

/* The same for Linux, after "pci=off ": the machine has no PCI, and a search for devices costs two
 * exits for each place where one could be. A command line with a pci= of its own, or without room
 * for ours, stays as it is. */
int loader_place_linux_command_line(const struct loader *loader, uint64_t limit);

/* The memory map, which each boot protocol passes in its own form. ACPI 6.4, 15.1, table 15.4. */
enum e820_type {
	E820_RAM = 1,
	E820_RESERVED = 2,
	E820_ACPI = 3,
};

struct e820_range {
	uint64_t start; /* GPA */
	uint64_t size;
	enum e820_type type;
};

/* Four ranges below 1 MiB and one for each region. */
#define E820_RANGES_MAX (4 + MEMORY_REGIONS_MAX)

/* Describes MEMORY, sorted and without overlaps; returns the number of ranges. */
size_t e820_build(const struct memory *memory, struct e820_range ranges[E820_RANGES_MAX]);

#endif
