/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/kernel_boot.h"

#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/cpu_tables.h"
#include "vmm/boot/loader.h"

static const struct {
	const char *magic;
	size_t size;
	const char *unpack;
} packers[] = {
	{ "\x1f\x8b", 2, "gunzip" },
	{ "\xfd"
	  "7zXZ",
	  5, "unxz" },
	{ "\x28\xb5\x2f\xfd", 4, "unzstd" },
	{ "BZh", 3, "bunzip2" },
	{ "\x02\x21\x4c\x18", 4, "unlz4" },
};

static int refuse(const struct kernel_file *file)
{
	for (size_t i = 0; i < sizeof(packers) / sizeof(packers[0]); i++)
		if (file->bytes.size >= packers[i].size &&
		    !memcmp(file->bytes.data, packers[i].magic, packers[i].size))
			return error_set(-ENOEXEC, "%s is compressed; unpack it with %s",
					 file->path, packers[i].unpack);
	return error_set(
		-ENOEXEC,
		"%s is no kernel that can be booted: neither bzImage, nor ELF, nor multiboot",
		file->path);
}

/* What the file is, most specific first: a multiboot or 64-bit entry is also in images that have
 * PVH. */
static int detect(struct loader *loader, enum boot_protocol *protocol)
{
	struct span bytes = loader->file.bytes;
	bool multiboot = multiboot_detect(bytes);
	int error;

	if (bzimage_detect(bytes)) {
		*protocol = BOOT_BZIMAGE;
		return 0;
	}
	if (!elf_image_detect(bytes)) {
		*protocol = BOOT_MULTIBOOT;
		return multiboot ? 0 : refuse(&loader->file);
	}
	error = elf_image_parse(&loader->file, &loader->elf);
	if (!error)
		*protocol = loader->elf.has_pvh_entry ? BOOT_PVH
			    : multiboot               ? BOOT_MULTIBOOT
						      : BOOT_ELF64;
	return error;
}

static int load(struct loader *loader, enum boot_protocol protocol)
{
	bool needs_elf = protocol == BOOT_PVH || protocol == BOOT_ELF64;
	int error = 0;

	if (protocol == BOOT_AUTO)
		error = detect(loader, &protocol);
	else if (needs_elf)
		error = elf_image_parse(&loader->file, &loader->elf);
	if (error)
		return error;
	loader->start->protocol = protocol;
	switch (protocol) {
	case BOOT_BZIMAGE:
		return bzimage_load(loader);
	case BOOT_PVH:
		return pvh_load(loader);
	case BOOT_ELF64:
		return elf64_load(loader);
	case BOOT_MULTIBOOT:
		return multiboot_load(loader);
	case BOOT_AUTO:
		break;
	}
	return error_set(-EINVAL, "boot protocol %d is not known", protocol);
}

int boot_load(const struct boot_options *options, const struct memory *memory,
	      struct boot_start *start)
{
	struct loader loader = { .options = options, .memory = memory, .start = start };
	int error = kernel_file_open(&loader.file, options->kernel);

	*start = (struct boot_start){ 0 };
	if (error)
		return error;
	error = load(&loader, options->protocol);
	if (!error)
		error = cpu_tables_write(memory, start);
	if (!error && loader.elf.has_symbols)
		start->image = options->kernel;
	kernel_file_close(&loader.file);
	return error;
}
