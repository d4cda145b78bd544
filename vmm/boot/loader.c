/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/loader.h"

#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/boot/acpi.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/linux_parameters.h"

#define PAGE_MASK_4K 0xfffull

int loader_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size)
{
	if (memory_write(memory, gpa, from, size))
		return error_set(-EFAULT, "the guest has no RAM at %#llx for its boot information",
				 (unsigned long long)gpa);
	return 0;
}

static int check_segment(const struct kernel_file *file, uint64_t start, uint64_t end)
{
	if (start >= LAYOUT_HIGH_MEMORY || (start >= LAYOUT_LOW_START && end <= LAYOUT_EBDA))
		return 0;
	return error_set(-ENOEXEC,
			 "%s has a segment from %#llx to %#llx; below 1 MiB, a kernel can be from "
			 "%#llx to %#llx",
			 file->path, (unsigned long long)start, (unsigned long long)end,
			 LAYOUT_LOW_START, LAYOUT_EBDA);
}

/* The first address after a segment that overlaps the block at LOW, as a page; LOW: none does. */
static uint64_t skip_segment(const struct elf_segment *segments, size_t count, uint64_t low)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t start = segments[i].physical, end = start + segments[i].memory_size;

		if (start < low + LOW_SIZE && low < end)
			return (end + PAGE_MASK_4K) & ~PAGE_MASK_4K;
	}
	return low;
}

int loader_place_low(struct loader *loader, const struct elf_segment *segments, size_t count)
{
	uint64_t low = LOW_DEFAULT, next;
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = check_segment(&loader->file, segments[i].physical,
				      segments[i].physical + segments[i].memory_size);
	if (error)
		return error;
	while ((next = skip_segment(segments, count, low)) != low)
		low = next + LOW_SIZE > LAYOUT_EBDA && next < LAYOUT_HIGH_MEMORY
			      ? LAYOUT_HIGH_MEMORY
			      : next;
	if (!memory_pointer(loader->memory, low, LOW_SIZE))
		return error_set(
			-ENOSPC,
			"%s leaves no room for its boot information; give the guest more memory",
			loader->file.path);
	loader->low = low;
	return 0;
}

int loader_load_elf(struct loader *loader)
{
	const struct elf_image *elf = &loader->elf;
	int error = loader_place_low(loader, elf->segments, elf->segment_count);

	return error ? error
		     : elf_image_load(&loader->file, elf, loader->memory, &loader->image_end);
}

/* The highest page-aligned address for SIZE bytes between the kernel and LAST. */
static int place(const struct loader *loader, const char *what, uint64_t size, uint64_t last,
		 uint64_t *gpa)
{
	const struct memory_region *low = &loader->memory->regions[0];
	uint64_t end = low->gpa + low->size;
	uint64_t floor = loader->image_end;

	if (floor < loader->low + LOW_SIZE)
		floor = loader->low + LOW_SIZE;
	if (floor < LAYOUT_HIGH_MEMORY)
		floor = LAYOUT_HIGH_MEMORY;
	if (last < end)
		end = last + 1;
	if (size > end || ((end - size) & ~PAGE_MASK_4K) < floor)
		return error_set(
			-ENOSPC,
			"%s of %llu KiB does not fit between the kernel's end at %#llx and %#llx; "
			"give the guest more memory",
			what, (unsigned long long)size >> 10, (unsigned long long)floor,
			(unsigned long long)end);
	*gpa = (end - size) & ~PAGE_MASK_4K;
	return 0;
}

int loader_place_initrd(const struct loader *loader, uint64_t last, struct placed *placed)
{
	struct span front = loader->options->initrd_front;
	struct kernel_file initrd;
	int error;

	*placed = (struct placed){ 0 };
	if (!loader->options->initrd)
		return 0;
	error = kernel_file_open(&initrd, loader->options->initrd);
	if (error)
		return error;
	placed->size = front.size + initrd.bytes.size;
	error = place(loader, initrd.path, placed->size, last, &placed->gpa);
	if (!error && front.size)
		error = loader_write(loader->memory, placed->gpa, front.data, front.size);
	if (!error)
		error = kernel_file_load(&initrd, 0, initrd.bytes.size, loader->memory,
					 placed->gpa + front.size);
	kernel_file_close(&initrd);
	return error;
}

int loader_place_text(const struct loader *loader, const char *text, uint64_t last,
		      struct placed *placed)
{
	int error;

	placed->size = strlen(text);
	error = place(loader, "a module", placed->size + 1, last, &placed->gpa);
	if (error)
		return error;
	/* The NUL is not part of the size; guests may treat the text as a string. */
	return loader_write(loader->memory, placed->gpa, text, placed->size + 1);
}

static const char *appended(const struct loader *loader)
{
	return loader->options->append ? loader->options->append : "";
}

int loader_place_command_line(const struct loader *loader, const char *prefix, uint64_t limit)
{
	const char *append = appended(loader);
	const uint64_t line = loader->low + LOW_COMMAND_LINE;
	size_t prefix_length = strlen(prefix);
	size_t length = strlen(append);
	int error;

	if (limit > LOW_COMMAND_LINE_SIZE - 1)
		limit = LOW_COMMAND_LINE_SIZE - 1;
	if (prefix_length + length > limit)
		return error_set(-E2BIG, "the command line has %zu bytes; %s accepts %llu",
				 prefix_length + length, loader->file.path,
				 (unsigned long long)limit);
	error = loader_write(loader->memory, line, prefix, prefix_length);
	return error ? error
		     : loader_write(loader->memory, line + prefix_length, append, length + 1);
}

int loader_place_linux_command_line(const struct loader *loader, uint64_t limit)
{
	static const char no_pci[] = "pci=off ";
	const char *append = appended(loader), *pci;

	linux_parameter_find(append, "pci=", &pci);
	if (pci || strlen(append) + strlen(no_pci) > limit ||
	    strlen(append) + strlen(no_pci) > LOW_COMMAND_LINE_SIZE - 1)
		return loader_place_command_line(loader, "", limit);
	return loader_place_command_line(loader, no_pci, limit);
}

/* A PC's map below 1 MiB. The hole from VGA to the tables is reserved, so that no kernel
 * searches it for RAM. */
static const struct e820_range low_ranges[] = {
	{ 0, LAYOUT_EBDA, E820_RAM },
	{ LAYOUT_EBDA, LAYOUT_VGA - LAYOUT_EBDA, E820_RESERVED },
	{ LAYOUT_VGA, ACPI_START - LAYOUT_VGA, E820_RESERVED },
	{ ACPI_START, ACPI_END - ACPI_START, E820_ACPI },
};

#define LOW_RANGES (sizeof(low_ranges) / sizeof(low_ranges[0]))

size_t e820_build(const struct memory *memory, struct e820_range ranges[E820_RANGES_MAX])
{
	size_t count = 0;

	for (; count < LOW_RANGES; count++)
		ranges[count] = low_ranges[count];
	for (size_t i = 0; i < memory->region_count; i++) {
		uint64_t start = memory->regions[i].gpa;
		uint64_t end = start + memory->regions[i].size;

		if (start < LAYOUT_HIGH_MEMORY)
			start = LAYOUT_HIGH_MEMORY;
		if (start < end)
			ranges[count++] = (struct e820_range){ start, end - start, E820_RAM };
	}
	return count;
}
