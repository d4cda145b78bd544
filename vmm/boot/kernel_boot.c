/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/kernel_boot.h"

#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
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
	return error_set(-ENOEXEC, "%s is not a bootable kernel", file->path);
}

/* Detects the protocol, the most specific one first: images with a PVH note may also have a
 * multiboot header or a 64-bit entry. */
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
	if (error)
		return error;
	*protocol = loader->elf.has_pvh_entry ? BOOT_PVH : multiboot ? BOOT_MULTIBOOT : BOOT_ELF64;
	return *protocol == BOOT_ELF64 && loader->elf.has_interpreter
		       ? error_set(-ENOEXEC, "%s is a program, not a kernel", loader->file.path)
		       : 0;
}

/* Replaces BOOT_AUTO, and parses an ELF file. */
static int choose_protocol(struct loader *loader, enum boot_protocol *protocol)
{
	if (*protocol == BOOT_AUTO)
		return detect(loader, protocol);
	return *protocol == BOOT_PVH || *protocol == BOOT_ELF64
		       ? elf_image_parse(&loader->file, &loader->elf)
		       : 0;
}

static int load(struct loader *loader, enum boot_protocol protocol)
{
	int error = choose_protocol(loader, &protocol);

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
	return error_set(-EINVAL, "unknown boot protocol %d", protocol);
}

/* Page table entry bits, SDM volume 3, 4.5. */
#define ENTRY_TABLE   0x03ull /* present, writable */
#define ENTRY_2M_PAGE 0x83ull /* present, writable, page size */
#define PAGE_SIZE_4K  0x1000ull
#define PAGE_SIZE_2M  0x200000ull
#define TABLE_ENTRIES 512

#define DIRECTORIES (LAYOUT_MAPPED / PAGE_SIZE_2M / TABLE_ENTRIES)

/* Flat descriptors, base 0, limit 4 GiB, accessed; SDM volume 3, 3.4.5. */
#define DESCRIPTOR_CODE_64 0x00af9b000000ffffull
#define DESCRIPTOR_CODE_32 0x00cf9b000000ffffull
#define DESCRIPTOR_DATA    0x00cf93000000ffffull
/* An available 32-bit TSS of 0x68 bytes at 0: the task register needs one. */
#define DESCRIPTOR_TSS 0x0000890000000067ull

static int write_page_tables(const struct memory *memory, uint64_t gpa)
{
	uint64_t *tables = memory_pointer(memory, gpa, (2 + DIRECTORIES) * PAGE_SIZE_4K);
	uint64_t *pointers, *pages;

	if (!tables)
		return -EFAULT;
	pointers = tables + TABLE_ENTRIES;
	pages = pointers + TABLE_ENTRIES;
	tables[0] = (gpa + PAGE_SIZE_4K) | ENTRY_TABLE;
	for (uint64_t i = 0; i < DIRECTORIES; i++)
		pointers[i] = (gpa + (2 + i) * PAGE_SIZE_4K) | ENTRY_TABLE;
	for (uint64_t i = 0; i < DIRECTORIES * TABLE_ENTRIES; i++)
		pages[i] = i * PAGE_SIZE_2M | ENTRY_2M_PAGE;
	return 0;
}

/*
 * Writes the GDT for the start's mode and, for long mode, the page tables; fills start->gdt,
 * gdt_size, cr3 and rsp. -EFAULT if low RAM is missing.
 */
static int cpu_tables_write(const struct loader *loader)
{
	struct boot_start *start = loader->start;
	const uint64_t gdt[] = {
		0,
		0,
		start->long_mode ? DESCRIPTOR_CODE_64 : DESCRIPTOR_CODE_32,
		DESCRIPTOR_DATA,
		DESCRIPTOR_TSS,
	};

	if (memory_write(loader->memory, loader->low + LOW_GDT, gdt, sizeof(gdt)) ||
	    (start->long_mode && write_page_tables(loader->memory, loader->low + LOW_PAGE_TABLES)))
		return error_set(-EFAULT, "the guest has no RAM for its first page tables");
	start->gdt = loader->low + LOW_GDT;
	start->gdt_size = sizeof(gdt);
	start->rsp = loader->low + LOW_STACK_TOP;
	start->cr3 = start->long_mode ? loader->low + LOW_PAGE_TABLES : 0;
	return 0;
}

static int bios_data_write(const struct memory *memory)
{
	const uint16_t ebda = LAYOUT_EBDA >> 4, kib = LAYOUT_EBDA >> 10;
	int error = loader_write(memory, LAYOUT_BDA_EBDA, &ebda, sizeof(ebda));

	return error ? error : loader_write(memory, LAYOUT_BDA_MEMORY, &kib, sizeof(kib));
}

int boot_check_kernel(const struct boot_options *options)
{
	struct loader loader = { .options = options };
	enum boot_protocol protocol = options->protocol;
	int error = kernel_file_open(&loader.file, options->kernel);

	if (!error)
		error = choose_protocol(&loader, &protocol);
	kernel_file_close(&loader.file);
	return error;
}

int boot_check_initrd(const struct boot_options *options)
{
	struct kernel_file file = { .fd = -1 };
	int error = options->initrd ? kernel_file_open(&file, options->initrd) : 0;

	kernel_file_close(&file);
	return error;
}

int boot_load(const struct boot_options *options, const struct memory *memory,
	      struct boot_start *start)
{
	struct loader loader = {
		.options = options, .memory = memory, .low = LOW_DEFAULT, .start = start
	};
	int error = kernel_file_open(&loader.file, options->kernel);

	*start = (struct boot_start){ 0 };
	if (error)
		return error;
	error = load(&loader, options->protocol);
	if (!error)
		error = bios_data_write(memory);
	if (!error)
		error = cpu_tables_write(&loader);
	if (!error && loader.elf.has_symbols)
		start->image = options->kernel;
	kernel_file_close(&loader.file);
	return error;
}
