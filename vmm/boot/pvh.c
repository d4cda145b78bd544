/* SPDX-License-Identifier: Apache-2.0 */
/* PVH: 32-bit entry with hvm_start_info at EBX; Xen's docs/misc/pvh.pandoc and
 * public/arch-x86/hvm/start_info.h. */
#include <errno.h>
#include <stddef.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/loader.h"

#define START_INFO_MAGIC   0x336ec578u
#define START_INFO_VERSION 1 /* the first with a memory map */

struct start_info {
	uint32_t magic;
	uint32_t version;
	uint32_t flags;
	uint32_t module_count;
	uint64_t modules;
	uint64_t command_line;
	uint64_t rsdp;
	uint64_t memory_map;
	uint32_t memory_map_entries;
	uint32_t reserved;
};

struct start_module {
	uint64_t start;
	uint64_t size;
	uint64_t command_line;
	uint64_t reserved;
};

struct start_memory {
	uint64_t start;
	uint64_t size;
	uint32_t type; /* as in e820 */
	uint32_t reserved;
};

/* Everything is in the one page at LOW_INFO. */
struct start_page {
	struct start_info info;
	struct start_module module;
	struct start_memory memory[E820_RANGES_MAX];
};

static int write_start_page(const struct loader *loader, const struct placed *initrd)
{
	const uint64_t at = loader->low + LOW_INFO;
	struct e820_range ranges[E820_RANGES_MAX];
	size_t count = e820_build(loader->memory, ranges);
	struct start_page page = {
		.info = { .magic = START_INFO_MAGIC,
			  .version = START_INFO_VERSION,
			  .module_count = initrd->size ? 1 : 0,
			  .modules = initrd->size ? at + offsetof(struct start_page, module) : 0,
			  .command_line = loader->low + LOW_COMMAND_LINE,
			  .rsdp = loader->options->rsdp,
			  .memory_map = at + offsetof(struct start_page, memory),
			  .memory_map_entries = (uint32_t)count },
		.module = { .start = initrd->gpa, .size = initrd->size },
	};

	for (size_t i = 0; i < count; i++)
		page.memory[i] =
			(struct start_memory){ ranges[i].start, ranges[i].size, ranges[i].type, 0 };
	return loader_write(loader->memory, at, &page, sizeof(page));
}

int pvh_load(struct loader *loader)
{
	struct placed initrd;
	int error;

	if (!loader->elf.has_pvh_entry)
		return error_set(
			-ENOEXEC,
			"%s has no PVH entry (a note XEN_ELFNOTE_PHYS32_ENTRY); Linux has it with CONFIG_PVH",
			loader->file.path);
	error = loader_load_elf(loader);
	if (!error)
		error = loader_place_initrd(loader, LAYOUT_MAPPED - 1, &initrd);
	if (!error)
		error = loader->elf.is_linux ? loader_place_linux_command_line(loader, UINT64_MAX)
					     : loader_place_command_line(loader, "", UINT64_MAX);
	if (error)
		return error;
	loader->start->rip = loader->elf.pvh_entry;
	loader->start->rbx = loader->low + LOW_INFO;
	return write_start_page(loader, &initrd);
}
