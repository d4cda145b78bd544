/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux by its 64-bit boot protocol, or by the 32-bit one if the kernel has no 64-bit entry:
 * bzImage (Documentation/arch/x86/boot.rst), and vmlinux with a setup header made here. Both get a
 * "zero page" (struct boot_params, zero-page.rst there).
 */
#include <asm/bootparam.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/loader.h"

/* "Undefined" loader in boot.rst's table of type_of_loader: without a type the kernel ignores
 * the initrd. */
#define LOADER_UNDEFINED  0xff
#define VIDEO_MODE_NORMAL 0xffff

#define SEED_SIZE 32

/* struct setup_data with a fixed size of data[]. */
struct seed_setup_data {
	uint64_t next;
	uint32_t type;
	uint32_t size;
	uint8_t seed[SEED_SIZE];
};

/* A guest without a seed waits for entropy in its first seconds. Kernels before 6.0 skip the
 * type. */
static int write_seed(const struct loader *loader)
{
	struct seed_setup_data data = { .type = SETUP_RNG_SEED, .size = SEED_SIZE };

	if (getrandom(data.seed, sizeof(data.seed), 0) != sizeof(data.seed))
		return error_set(-errno, "getrandom for the guest's seed: %m");
	return loader_write(loader->memory, loader->low + LOW_SETUP_DATA, &data, sizeof(data));
}

static void fill_memory_map(const struct memory *memory, struct boot_params *params)
{
	struct e820_range ranges[E820_RANGES_MAX];
	size_t count = e820_build(memory, ranges);

	for (size_t i = 0; i < count; i++) {
		params->e820_table[i].addr = ranges[i].start;
		params->e820_table[i].size = ranges[i].size;
		params->e820_table[i].type = ranges[i].type;
	}
	params->e820_entries = (uint8_t)count;
}

/*
 * Completes PARAMS, whose hdr is from the image or zero, with memory map, INITRD, command line,
 * RSDP and random seed, and writes it to LOW_ZERO_PAGE. The command line must be written
 * already.
 */
static int zero_page_write(const struct loader *loader, struct boot_params *params,
			   const struct placed *initrd)
{
	int error = write_seed(loader);

	if (error)
		return error;
	fill_memory_map(loader->memory, params);
	params->acpi_rsdp_addr = loader->options->rsdp;
	params->hdr.type_of_loader = LOADER_UNDEFINED;
	params->hdr.vid_mode = VIDEO_MODE_NORMAL;
	params->hdr.cmd_line_ptr = (uint32_t)(loader->low + LOW_COMMAND_LINE);
	params->hdr.setup_data = loader->low + LOW_SETUP_DATA;
	params->hdr.ramdisk_image = (uint32_t)initrd->gpa; /* low RAM: below 4 GiB */
	params->hdr.ramdisk_size = (uint32_t)initrd->size;
	return loader_write(loader->memory, loader->low + LOW_ZERO_PAGE, params, sizeof(*params));
}

#define HEADER_OFFSET 0x1f1
/* The byte at 0x201, the target of the first jump, is the header's size after 0x202. */
#define HEADER_END_BYTE       0x201
#define HEADER_END_BASE       0x202
#define BOOT_FLAG             0xaa55
#define HEADER_MAGIC          0x53726448u /* "HdrS" */
#define VERSION_MIN           0x20c /* with xloadflags; pref_address and init_size are older */
#define SECTOR_SIZE           512
#define PARAGRAPH_SIZE        16
#define ENTRY_64              0x200
#define DEFAULT_SETUP_SECTORS 4

bool bzimage_detect(struct span file)
{
	uint16_t flag;
	uint32_t magic;

	return span_u16(file, HEADER_OFFSET + offsetof(struct setup_header, boot_flag), &flag) &&
	       flag == BOOT_FLAG &&
	       span_u32(file, HEADER_OFFSET + offsetof(struct setup_header, header), &magic) &&
	       magic == HEADER_MAGIC;
}

static int read_header(const struct kernel_file *file, struct setup_header *header)
{
	uint8_t jump;
	size_t size;

	if (!bzimage_detect(file->bytes))
		return error_set(-ENOEXEC, "%s is not a bzImage", file->path);
	if (!span_u8(file->bytes, HEADER_END_BYTE, &jump))
		return error_set(-ENOEXEC, "%s is truncated inside the setup header", file->path);
	size = HEADER_END_BASE + jump - HEADER_OFFSET;
	if (size > sizeof(*header))
		size = sizeof(*header);
	memset(header, 0, sizeof(*header));
	if (!span_copy(file->bytes, HEADER_OFFSET, header, size))
		return error_set(-ENOEXEC, "%s is truncated inside the setup header", file->path);
	return 0;
}

static int check_header(const struct kernel_file *file, const struct setup_header *header)
{
	if (header->version < VERSION_MIN)
		return error_set(
			-ENOEXEC,
			"%s has boot protocol %u.%02u; 2.12 (Linux 3.8) or newer is needed",
			file->path, header->version >> 8, header->version & 0xff);
	if (!(header->loadflags & LOADED_HIGH))
		return error_set(-ENOEXEC,
				 "%s is a zImage, which loads below 1 MiB; a bzImage is needed",
				 file->path);
	return 0;
}

/* The address that the kernel prefers. It decompresses itself in place and needs init_size
 * bytes. */
static int choose_address(const struct loader *loader, const struct setup_header *header,
			  uint64_t *gpa)
{
	uint64_t alignment = header->kernel_alignment;

	*gpa = header->pref_address;
	if (*gpa < LAYOUT_HIGH_MEMORY && header->relocatable_kernel) {
		if (alignment == 0 || (alignment & (alignment - 1)))
			return error_set(-ENOEXEC, "%s: broken setup header: alignment %#llx",
					 loader->file.path, (unsigned long long)alignment);
		*gpa = (LAYOUT_HIGH_MEMORY + alignment - 1) & ~(alignment - 1);
	}
	if (*gpa < LAYOUT_HIGH_MEMORY || *gpa >= LAYOUT_MAPPED)
		return error_set(-ENOEXEC, "%s: broken setup header: load address %#llx",
				 loader->file.path, (unsigned long long)*gpa);
	return 0;
}

/* The protected-mode part: everything after the setup sectors. syssize counts it in paragraphs,
 * rounded up. */
static int find_payload(const struct kernel_file *file, const struct setup_header *header,
			uint64_t *offset, uint64_t *size)
{
	uint64_t sectors = header->setup_sects ? header->setup_sects : DEFAULT_SETUP_SECTORS;
	uint64_t declared = (uint64_t)header->syssize * PARAGRAPH_SIZE;

	*offset = (sectors + 1) * SECTOR_SIZE;
	if (*offset >= file->bytes.size)
		return error_set(-ENOEXEC,
				 "%s is truncated: its setup sectors alone have %llu bytes",
				 file->path, (unsigned long long)*offset);
	*size = file->bytes.size - *offset;
	if (declared >= *size + PARAGRAPH_SIZE)
		return error_set(
			-ENOEXEC, "%s is truncated: the kernel has %llu bytes, the file %llu",
			file->path, (unsigned long long)declared, (unsigned long long)*size);
	if (declared && declared < *size)
		*size = declared; /* signatures and the like follow */
	return 0;
}

/* The entries of both protocols, from where the kernel is loaded. */
static uint64_t entry_offset(const struct setup_header *header)
{
	return header->xloadflags & XLF_KERNEL_64 ? ENTRY_64 : 0;
}

static int load_kernel(struct loader *loader, const struct setup_header *header)
{
	uint64_t offset = 0, size = 0, gpa = 0, needed;
	int error = find_payload(&loader->file, header, &offset, &size);

	if (!error)
		error = choose_address(loader, header, &gpa);
	if (error)
		return error;
	if (size <= entry_offset(header))
		return error_set(-ENOEXEC, "%s is truncated: it ends before its entry",
				 loader->file.path);
	needed = header->init_size > size ? header->init_size : size;
	if (!memory_pointer(loader->memory, gpa, needed))
		return error_set(
			-ENOSPC,
			"%s does not fit: it needs guest RAM up to %llu MiB to decompress itself; "
			"give the guest more memory",
			loader->file.path, (unsigned long long)(gpa + needed + 0xfffff) >> 20);
	loader->image_end = gpa + needed;
	loader->start->rip = gpa + entry_offset(header);
	return kernel_file_load(&loader->file, offset, size, loader->memory, gpa);
}

int bzimage_load(struct loader *loader)
{
	struct boot_params params = { 0 };
	struct placed initrd;
	int error = read_header(&loader->file, &params.hdr);

	if (!error)
		error = check_header(&loader->file, &params.hdr);
	if (!error)
		error = load_kernel(loader, &params.hdr);
	if (!error)
		error = loader_place_initrd(loader, params.hdr.initrd_addr_max, &initrd);
	if (!error)
		error = loader_place_linux_command_line(loader, params.hdr.cmdline_size);
	if (error)
		return error;
	params.hdr.code32_start = (uint32_t)(loader->start->rip - entry_offset(&params.hdr));
	loader->start->long_mode = params.hdr.xloadflags & XLF_KERNEL_64;
	loader->start->rsi = loader->low + LOW_ZERO_PAGE;
	return zero_page_write(loader, &params, &initrd);
}

/* COMMAND_LINE_SIZE of arch/x86/include/asm/setup.h, without the NUL */
#define LINUX_COMMAND_LINE_MAX 2047

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
	error = loader_load_elf(loader);
	if (!error)
		error = loader_place_initrd(loader, LAYOUT_MAPPED - 1, &initrd);
	if (!error)
		error = loader_place_linux_command_line(loader, LINUX_COMMAND_LINE_MAX);
	if (error)
		return error;
	loader->start->long_mode = true;
	loader->start->rip = loader->elf.entry;
	loader->start->rsi = loader->low + LOW_ZERO_PAGE;
	return zero_page_write(loader, &params, &initrd);
}
