/* SPDX-License-Identifier: Apache-2.0 */

#include "vmm/symbols/build_id_cache_files.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/guest/page_walk.h"

#define PAGE 4096ull

/* Limits of a guest's claims, beyond any kernel's code. */
#define RANGE_MAX (256ull << 20)
#define TOTAL_MAX (512ull << 20)

struct range {
	uint64_t start, end;  /* GVA, whole pages */
	uint64_t content_end; /* GVA; the rest is not in the file */
	uint64_t offset;      /* in the file */
};

struct ranges {
	struct range *ranges; /* owned; sorted by start, not overlapping */
	size_t count;
};

static uint64_t page_floor(uint64_t address)
{
	return address & ~(PAGE - 1);
}

static uint64_t page_ceiling(uint64_t address)
{
	return page_floor(address + PAGE - 1);
}

static void add_range(struct ranges *ranges, uint64_t start, uint64_t content_end, uint64_t end)
{
	struct range range = { page_floor(start), page_ceiling(end), page_ceiling(content_end), 0 };

	if (range.start < range.end && range.end - range.start <= RANGE_MAX)
		ranges->ranges[ranges->count++] = range;
}

static int compare_ranges(const void *left, const void *right)
{
	uint64_t a = ((const struct range *)left)->start, b = ((const struct range *)right)->start;

	return a < b ? -1 : a > b;
}

/* perf inserts the ranges into its maps one by one: they must not overlap. */
static void separate(struct ranges *ranges)
{
	size_t kept = 0;

	qsort(ranges->ranges, ranges->count, sizeof(ranges->ranges[0]), compare_ranges);
	for (size_t i = 0; i < ranges->count; i++) {
		struct range range = ranges->ranges[i];

		if (kept && range.start < ranges->ranges[kept - 1].end)
			range.start = ranges->ranges[kept - 1].end;
		if (range.start < range.end)
			ranges->ranges[kept++] = range;
	}
	ranges->count = kept;
}

static int find_ranges(const struct kernel_image *image, struct ranges *ranges)
{
	uint64_t total = 0;

	*ranges = (struct ranges){ .ranges = calloc(image->module_count + 2,
						    sizeof(ranges->ranges[0])) };
	if (!ranges->ranges) {
		return error_set(-ENOMEM, "no memory to write the kernel's code");
	}
	add_range(ranges, image->start, image->text_end, image->end);
	for (size_t i = 0; i < image->module_count; i++)
		if (build_id_cache_name_is_plain(image->modules[i].name))
			add_range(ranges, image->modules[i].start,
				  image->modules[i].start + image->modules[i].size,
				  image->modules[i].start + image->modules[i].size);
	separate(ranges);
	for (size_t i = 0; i < ranges->count; i++)
		total += ranges->ranges[i].end - ranges->ranges[i].start;
	if (ranges->count && ranges->count < PN_XNUM && total <= TOTAL_MAX)
		return 0;
	free(ranges->ranges);
	return error_set(-EINVAL, "the guest's kernel and modules claim to have %llu bytes of code",
			 (unsigned long long)total);
}

static int write_at(int fd, const void *data, size_t size, uint64_t offset)
{
	if (pwrite(fd, data, size, (off_t)offset) != (ssize_t)size)
		return error_set(errno ? -errno : -ENOSPC, "cannot write the kernel's code: %s",
				 strerror(errno));
	return 0;
}

static int write_content(int fd, const struct range *range, const struct guest_view *view,
			 const struct guest_paging *paging)
{
	uint8_t page[PAGE];
	int error = 0;

	for (uint64_t address = range->start; !error && address < range->content_end;
	     address += PAGE)
		if (!guest_read_virtual(view, paging, address, page, sizeof(page)))
			error = write_at(fd, page, sizeof(page),
					 range->offset + (address - range->start));
	return error;
}

static int write_headers(int fd, const struct ranges *ranges)
{
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_CORE,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(header),
		.e_ehsize = sizeof(header),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (uint16_t)ranges->count,
	};
	int error = write_at(fd, &header, sizeof(header), 0);

	for (size_t i = 0; !error && i < ranges->count; i++) {
		const struct range *range = &ranges->ranges[i];
		Elf64_Phdr part = {
			.p_type = PT_LOAD,
			.p_flags = PF_R | PF_W | PF_X,
			.p_offset = range->offset,
			.p_vaddr = range->start,
			.p_filesz = range->end - range->start,
			.p_memsz = range->end - range->start,
			.p_align = PAGE,
		};

		error = write_at(fd, &part, sizeof(part), sizeof(header) + i * sizeof(part));
	}
	return error;
}

/* Complete ranges come first, the kernel last. Returns the end of the file. */
static uint64_t place_ranges(struct ranges *ranges)
{
	uint64_t next = page_ceiling(sizeof(Elf64_Ehdr) + ranges->count * sizeof(Elf64_Phdr)), end;

	for (size_t i = 0; i < ranges->count; i++) {
		struct range *range = &ranges->ranges[i];

		if (range->content_end < range->end)
			continue;
		range->offset = next;
		next += range->end - range->start;
	}
	end = next;
	for (size_t i = 0; i < ranges->count; i++) {
		struct range *range = &ranges->ranges[i];

		if (range->content_end >= range->end)
			continue;
		range->offset = next;
		end = next +
		      (range->content_end > range->start ? range->content_end - range->start : 0);
		next += range->end - range->start;
	}
	return end;
}

int kcore_write(int fd, const struct kernel_image *image, const struct guest_view *view,
		const struct guest_paging *paging)
{
	struct ranges ranges;
	uint64_t end;
	int error = find_ranges(image, &ranges);

	if (error)
		return error;
	end = place_ranges(&ranges);
	error = write_headers(fd, &ranges);
	for (size_t i = 0; !error && i < ranges.count; i++)
		error = write_content(fd, &ranges.ranges[i], view, paging);
	if (!error && ftruncate(fd, (off_t)end))
		error = error_set(-errno, "cannot write the kernel's code: %m");
	free(ranges.ranges);
	return error;
}
