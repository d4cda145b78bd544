/* SPDX-License-Identifier: Apache-2.0 */
/* bzImage by the 64-bit boot protocol: Documentation/arch/x86/boot.rst. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/cpu_tables.h"
#include "vmm/boot/loader.h"
#include "vmm/boot/zero_page.h"

#define HEADER_OFFSET 0x1f1
/* The header ends so many bytes behind 0x202 as the byte at 0x201, the target of its first jump,
 * says. */
#define HEADER_END_BYTE       0x201
#define HEADER_END_BASE       0x202
#define BOOT_FLAG             0xaa55
#define HEADER_MAGIC          0x53726448u /* "HdrS" */
#define VERSION_64BIT         0x20c
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
	if (header->version < VERSION_64BIT)
		return error_set(
			-ENOEXEC,
			"%s has boot protocol %u.%02u; 2.12 (Linux 3.8) or newer is needed",
			file->path, header->version >> 8, header->version & 0xff);
	if (!(header->xloadflags & XLF_KERNEL_64))
		return error_set(-ENOEXEC, "%s is a 32-bit kernel; a 64-bit one is needed",
				 file->path);
	if (!(header->loadflags & LOADED_HIGH))
		return error_set(-ENOEXEC,
				 "%s is a zImage, which loads below 1 MiB; a bzImage is needed",
				 file->path);
	return 0;
}

/* The place the kernel asks for; it decompresses itself behind its image, init_size bytes in all.
 */
static int choose_place(const struct loader *loader, const struct setup_header *header,
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
	if (*gpa < LAYOUT_HIGH_MEMORY || *gpa >= CPU_TABLES_MAPPED)
		return error_set(-ENOEXEC, "%s: broken setup header: it wants to stand at %#llx",
				 loader->file.path, (unsigned long long)*gpa);
	return 0;
}

/* The protected-mode part: all behind the setup sectors, which syssize counts in paragraphs,
 * rounded up. */
static int find_payload(const struct kernel_file *file, const struct setup_header *header,
			uint64_t *offset, uint64_t *size)
{
	uint64_t sectors = header->setup_sects ? header->setup_sects : DEFAULT_SETUP_SECTORS;
	uint64_t wanted = (uint64_t)header->syssize * PARAGRAPH_SIZE;

	*offset = (sectors + 1) * SECTOR_SIZE;
	if (*offset >= file->bytes.size)
		return error_set(-ENOEXEC,
				 "%s is truncated: its setup sectors alone have %llu bytes",
				 file->path, (unsigned long long)*offset);
	*size = file->bytes.size - *offset;
	if (wanted >= *size + PARAGRAPH_SIZE)
		return error_set(-ENOEXEC,
				 "%s is truncated: the kernel has %llu bytes, %llu are there",
				 file->path, (unsigned long long)wanted, (unsigned long long)*size);
	if (wanted && wanted < *size)
		*size = wanted; /* signatures and the like follow */
	return 0;
}

static int load_kernel(struct loader *loader, const struct setup_header *header)
{
	uint64_t offset = 0, size = 0, gpa = 0, needed;
	int error = find_payload(&loader->file, header, &offset, &size);

	if (!error)
		error = choose_place(loader, header, &gpa);
	if (error)
		return error;
	if (size <= ENTRY_64)
		return error_set(-ENOEXEC, "%s is truncated: it ends before its 64-bit entry",
				 loader->file.path);
	needed = header->init_size > size ? header->init_size : size;
	if (!memory_pointer(loader->memory, gpa, needed))
		return error_set(
			-ENOSPC,
			"%s does not fit: it needs guest RAM up to %llu MiB to unpack itself; "
			"give the guest more memory",
			loader->file.path, (unsigned long long)(gpa + needed + 0xfffff) >> 20);
	loader->image_end = gpa + needed;
	loader->start->rip = gpa + ENTRY_64;
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
		error = loader_place_command_line(loader, "", params.hdr.cmdline_size);
	if (error)
		return error;
	params.hdr.code32_start = (uint32_t)(loader->start->rip - ENTRY_64);
	loader->start->long_mode = true;
	loader->start->rsi = LAYOUT_ZERO_PAGE;
	return zero_page_write(loader, &params, &initrd);
}
