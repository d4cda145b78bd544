/* SPDX-License-Identifier: Apache-2.0 */
/* vmlinux by its 64-bit entry, as the 64-bit boot protocol enters a bzImage, with a header made
 * here. */
#include <errno.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/cpu_tables.h"
#include "vmm/boot/loader.h"
#include "vmm/boot/zero_page.h"

#define LINUX_COMMAND_LINE_MAX                                                                     \
	2047 /* COMMAND_LINE_SIZE of arch/x86/include/asm/setup.h, without the NUL */

static const struct setup_header linux_header = {
	.boot_flag = 0xaa55,
	.header = 0x53726448, /* "HdrS" */
	.version = 0x20f,
	.loadflags = LOADED_HIGH,
	.kernel_alignment = 0x1000000,
	.cmdline_size = LINUX_COMMAND_LINE_MAX,
	.initrd_addr_max = UINT32_MAX,
};

int elf64_load(struct loader *loader)
{
	struct boot_params params = { .hdr = linux_header };
	struct placed initrd;
	int error;

	if (!loader->elf.is_64)
		return error_set(-ENOEXEC,
				 "%s is a 32-bit ELF without a PVH entry or a multiboot header",
				 loader->file.path);
	error = elf_image_load(&loader->file, &loader->elf, loader->memory, &loader->image_end);
	if (!error)
		error = loader_place_initrd(loader, CPU_TABLES_MAPPED - 1, &initrd);
	if (!error)
		error = loader_place_command_line(loader, "", LINUX_COMMAND_LINE_MAX);
	if (error)
		return error;
	loader->start->long_mode = true;
	loader->start->rip = loader->elf.entry;
	loader->start->rsi = LAYOUT_ZERO_PAGE;
	return zero_page_write(loader, &params, &initrd);
}
