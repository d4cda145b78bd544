/* SPDX-License-Identifier: Apache-2.0 */
/* Multiboot 1 (Multiboot Specification 0.6.96): ELF32 images, ELF64 images with a 32-bit entry,
 * and images whose header has the load addresses. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/loader.h"

#define HEADER_MAGIC 0x1badb002u
#define LOADER_MAGIC 0x2badb002u
/* The header lies within the first 8 KiB, on a multiple of 4. */
#define HEADER_SEARCH 8192

/* Bits 0 to 15 must be understood: page alignment, memory information, video (a preference). */
#define HEADER_REQUIRED   0xffffu
#define HEADER_UNDERSTOOD 0x0007u
#define HEADER_ADDRESSES  0x10000u

#define INFO_MEMORY       (1u << 0)
#define INFO_COMMAND_LINE (1u << 2)
#define INFO_MODULES      (1u << 3)
#define INFO_MEMORY_MAP   (1u << 6)
#define INFO_LOADER_NAME  (1u << 9)

struct multiboot_header {
	uint32_t magic;
	uint32_t flags;
	uint32_t checksum;
	uint32_t header_address;
	uint32_t load_address;
	uint32_t load_end;
	uint32_t bss_end;
	uint32_t entry;
};

#define HEADER_SHORT offsetof(struct multiboot_header, header_address)

struct multiboot_info {
	uint32_t flags;
	uint32_t memory_lower; /* KiB from 0 */
	uint32_t memory_upper; /* KiB from 1 MiB */
	uint32_t boot_device;
	uint32_t command_line;
	uint32_t module_count;
	uint32_t modules;
	uint32_t symbols[4];
	uint32_t memory_map_size; /* bytes */
	uint32_t memory_map;
	uint32_t drives[2];
	uint32_t configuration;
	uint32_t loader_name;
	uint32_t apm;
};

struct multiboot_module {
	uint32_t start;
	uint32_t end; /* after the last byte */
	uint32_t command_line;
	uint32_t reserved;
};

struct multiboot_memory {
	uint32_t size; /* of what follows */
	uint64_t start;
	uint64_t length;
	uint32_t type; /* as in e820 */
} __attribute__((packed));

/* Everything is in the one page at LOW_INFO. */
struct info_page {
	struct multiboot_info info;
	struct multiboot_module module;
	struct multiboot_memory memory[E820_RANGES_MAX];
	char loader_name[16];
};

#define INFO_ADDRESS(loader, member)                                                               \
	((uint32_t)((loader)->low + LOW_INFO + offsetof(struct info_page, member)))

/* Finds the header at *OFFSET. Members beyond the end of the file are zero. */
static bool find_header(struct span file, struct multiboot_header *header, uint64_t *offset)
{
	memset(header, 0, sizeof(*header));
	for (*offset = 0; *offset + HEADER_SHORT <= HEADER_SEARCH; *offset += 4) {
		if (!span_copy(file, *offset, header, HEADER_SHORT))
			return false;
		if (header->magic == HEADER_MAGIC &&
		    header->magic + header->flags + header->checksum == 0)
			return true;
	}
	return false;
}

bool multiboot_detect(struct span file)
{
	struct multiboot_header header;
	uint64_t offset;

	return find_header(file, &header, &offset);
}

static int check_addresses(const struct loader *loader, const struct multiboot_header *header,
			   uint64_t offset)
{
	if (header->header_address < header->load_address ||
	    header->header_address - header->load_address > offset ||
	    (header->load_end && header->load_end < header->load_address) ||
	    (header->bss_end && header->bss_end < header->load_end))
		return error_set(
			-ENOEXEC,
			"%s: broken multiboot header: header at %#x, load %#x to %#x, bss to %#x",
			loader->file.path, header->header_address, header->load_address,
			header->load_end, header->bss_end);
	return 0;
}

/* Loads by the header's own addresses ("a.out kludge"), which include the address of the header
 * itself. */
static int load_by_addresses(struct loader *loader, struct multiboot_header *header,
			     uint64_t offset)
{
	struct span file = loader->file.bytes;
	uint64_t start, size;
	int error;

	if (!span_copy(file, offset, header, sizeof(*header)))
		return error_set(-ENOEXEC, "%s is truncated inside the multiboot header",
				 loader->file.path);
	error = check_addresses(loader, header, offset);
	if (error)
		return error;
	start = offset - (header->header_address - header->load_address);
	size = header->load_end ? header->load_end - header->load_address : file.size - start;
	loader->image_end = header->load_address + size;
	if (header->bss_end > loader->image_end)
		loader->image_end = header->bss_end;
	if (header->entry < header->load_address || header->entry >= loader->image_end)
		return error_set(-ENOEXEC,
				 "%s: broken multiboot header: its entry %#x is outside the image",
				 loader->file.path, header->entry);
	if (!memory_pointer(loader->memory, header->load_address,
			    loader->image_end - header->load_address))
		return error_set(
			-ENOSPC,
			"%s does not fit: it needs guest RAM up to %llu MiB; give the guest more memory",
			loader->file.path, (unsigned long long)(loader->image_end + 0xfffff) >> 20);
	error = loader_place_low(
		loader,
		&(struct elf_segment){ .physical = header->load_address,
				       .memory_size = loader->image_end - header->load_address },
		1);
	if (error)
		return error;
	loader->start->rip = header->entry;
	return kernel_file_load(&loader->file, start, size, loader->memory, header->load_address);
}

static int load_elf(struct loader *loader)
{
	int error = elf_image_parse(&loader->file, &loader->elf);

	if (error)
		return error;
	loader->start->rip = loader->elf.entry;
	return loader_load_elf(loader);
}

static int load_image(struct loader *loader)
{
	struct multiboot_header header;
	uint64_t offset;

	if (!find_header(loader->file.bytes, &header, &offset))
		return error_set(-ENOEXEC, "%s has no multiboot header in its first 8 KiB",
				 loader->file.path);
	if (header.flags & HEADER_REQUIRED & ~HEADER_UNDERSTOOD)
		return error_set(-ENOEXEC, "%s needs unsupported multiboot features: flags %#x",
				 loader->file.path, header.flags);
	if (header.flags & HEADER_ADDRESSES)
		return load_by_addresses(loader, &header, offset);
	return load_elf(loader);
}

/* The single module: an environment text, or else the initrd. */
static int place_module(const struct loader *loader, struct placed *module)
{
	const struct boot_options *options = loader->options;

	if (options->module_text && options->initrd)
		return error_set(-EINVAL,
				 "a multiboot image accepts an initrd or a module text, not both");
	if (options->module_text)
		return loader_place_text(loader, options->module_text, LAYOUT_MAPPED - 1, module);
	return loader_place_initrd(loader, LAYOUT_MAPPED - 1, module);
}

static void fill_memory(const struct loader *loader, struct info_page *page)
{
	struct e820_range ranges[E820_RANGES_MAX];
	size_t count = e820_build(loader->memory, ranges);
	const struct memory_region *low = &loader->memory->regions[0];

	for (size_t i = 0; i < count; i++)
		page->memory[i] =
			(struct multiboot_memory){ sizeof(page->memory[0]) - sizeof(uint32_t),
						   ranges[i].start, ranges[i].size,
						   ranges[i].type };
	page->info.memory_map = INFO_ADDRESS(loader, memory);
	page->info.memory_map_size = (uint32_t)(count * sizeof(page->memory[0]));
	page->info.memory_lower = LAYOUT_EBDA >> 10;
	page->info.memory_upper = (uint32_t)((low->gpa + low->size - LAYOUT_HIGH_MEMORY) >> 10);
}

static int write_info_page(const struct loader *loader, const struct placed *module)
{
	const uint32_t command_line = (uint32_t)(loader->low + LOW_COMMAND_LINE);
	bool has_module = loader->options->module_text || loader->options->initrd;
	struct info_page page = {
		.info = { .flags = INFO_MEMORY | INFO_COMMAND_LINE | INFO_MEMORY_MAP |
				   INFO_LOADER_NAME | (has_module ? INFO_MODULES : 0),
			  .command_line = command_line,
			  .module_count = has_module ? 1 : 0,
			  .modules = has_module ? INFO_ADDRESS(loader, module) : 0,
			  .loader_name = INFO_ADDRESS(loader, loader_name) },
		.loader_name = "kvmscope",
	};

	if (has_module)
		page.module = (struct multiboot_module){
			.start = (uint32_t)module->gpa,
			.end = (uint32_t)(module->gpa + module->size),
			.command_line = command_line,
		};
	fill_memory(loader, &page);
	return loader_write(loader->memory, loader->low + LOW_INFO, &page, sizeof(page));
}

/* Guests expect their own name as the first word, as GRUB legacy and QEMU pass it. */
static int place_command_line(const struct loader *loader)
{
	const char *path = loader->options->kernel;
	const char *slash = strrchr(path, '/');
	const char *append = loader->options->append;
	char name[NAME_MAX + 2];

	snprintf(name, sizeof(name), "%.*s%s", NAME_MAX, slash ? slash + 1 : path,
		 append && *append ? " " : "");
	return loader_place_command_line(loader, name, UINT64_MAX);
}

int multiboot_load(struct loader *loader)
{
	struct placed module = { 0 };
	int error = load_image(loader);

	if (!error)
		error = place_module(loader, &module);
	if (!error)
		error = place_command_line(loader);
	if (error)
		return error;
	loader->start->rax = LOADER_MAGIC;
	loader->start->rbx = loader->low + LOW_INFO;
	return write_info_page(loader, &module);
}
