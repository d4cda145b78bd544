/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/page_walk.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define PRESENT   (1ull << 0)
#define USER      (1ull << 2)
#define LARGE     (1ull << 7)
#define ADDRESS   0x000ffffffffff000ull /* bits 51:12 of an 8-byte entry */
#define LEAF_BITS 0x8000000000000fffull

static __attribute__((noinline)) uint64_t read_unmapped_entry(const struct guest_view *view,
							      uint64_t gpa, size_t size)
{
	uint64_t entry = 0;

	return guest_read_physical(view, gpa, &entry, size) ? 0 : entry;
}

/*
 * The entry at GPA; 0, which is not present, if it cannot be read. Inline, so that the copy is one
 * load and needs no stack protector: walks dominate the cost of reading a guest.
 */
static inline uint64_t read_entry(const struct guest_view *view, uint64_t gpa, size_t size)
{
	const void *mapped = guest_physical_pointer(view, gpa, size);
	uint64_t entry = 0;

	if (!mapped)
		return read_unmapped_entry(view, gpa, size);
	memcpy(&entry, mapped, size);
	return entry;
}

static int set_leaf(struct guest_translation *translation, uint64_t frame, uint64_t size,
		    uint64_t gva, uint64_t entry)
{
	translation->gpa = (frame & ~(size - 1)) | (gva & (size - 1));
	translation->page_size = size;
	translation->flags = entry & LEAF_BITS;
	return 0;
}

/*
 * Walks LEVELS tables of 512 8-byte entries, the first at TABLE. Large pages are allowed at level
 * 2, and at level 3 if that is not the top.
 */
static int walk_wide(const struct guest_view *view, uint64_t table, int levels, uint64_t gva,
		     struct guest_translation *translation)
{
	for (int level = levels;; level--) {
		unsigned int shift = 12 + 9 * (unsigned int)(level - 1);
		uint64_t entry = read_entry(view, table + (gva >> shift & 511) * 8, 8);

		if (!(entry & PRESENT))
			return -EFAULT;
		if (level == 1 || (entry & LARGE && level <= 3))
			return set_leaf(translation, entry & ADDRESS, 1ull << shift, gva, entry);
		if (entry & LARGE)
			return -EFAULT;
		table = entry & ADDRESS;
	}
}

static int walk_long_mode(const struct guest_view *view, const struct guest_paging *paging,
			  uint64_t gva, struct guest_translation *translation)
{
	int levels = paging->cr4 & CR4_LA57 ? 5 : 4;
	unsigned int unused = 64 - (12 + 9 * (unsigned int)levels);

	if ((uint64_t)((int64_t)(gva << unused) >> unused) != gva)
		return -EFAULT;
	return walk_wide(view, paging->cr3 & ADDRESS, levels, gva, translation);
}

/* SDM vol. 3A 4.4: four PDPTEs, 32-byte aligned, then two levels of 512 entries. */
static int walk_pae(const struct guest_view *view, const struct guest_paging *paging, uint64_t gva,
		    struct guest_translation *translation)
{
	uint64_t entry = read_entry(view, (paging->cr3 & 0xffffffe0) + (gva >> 30) * 8, 8);

	if (!(entry & PRESENT))
		return -EFAULT;
	return walk_wide(view, entry & ADDRESS, 2, gva, translation);
}

/* SDM vol. 3A 4.3: two levels of 1024 4-byte entries; 4 MiB pages with bits 39:32 in 20:13
 * (PSE-36). */
static int walk_32bit(const struct guest_view *view, const struct guest_paging *paging,
		      uint64_t gva, struct guest_translation *translation)
{
	uint64_t entry = read_entry(view, (paging->cr3 & 0xfffff000) + (gva >> 22) * 4, 4);

	if (!(entry & PRESENT))
		return -EFAULT;
	if (entry & LARGE && paging->cr4 & CR4_PSE)
		return set_leaf(translation, (entry & 0xffc00000) | (entry & 0x1fe000) << 19,
				4ull << 20, gva, entry);
	entry = read_entry(view, (entry & 0xfffff000) + (gva >> 12 & 1023) * 4, 4);
	if (!(entry & PRESENT))
		return -EFAULT;
	return set_leaf(translation, entry & 0xfffff000, 4096, gva, entry);
}

int guest_translate(const struct guest_view *view, const struct guest_paging *paging, uint64_t gva,
		    struct guest_translation *translation)
{
	if (view->translate)
		return view->translate(view, gva, translation);
	if (paging->cr0 & CR0_PG && paging->efer & EFER_LMA)
		return walk_long_mode(view, paging, gva, translation);
	if (gva >> 32)
		return -EFAULT;
	if (!(paging->cr0 & CR0_PG))
		return set_leaf(translation, gva, 4096, gva, PRESENT | USER);
	return paging->cr4 & CR4_PAE ? walk_pae(view, paging, gva, translation)
				     : walk_32bit(view, paging, gva, translation);
}

static size_t left_in_page(const struct guest_translation *translation, size_t size)
{
	uint64_t left = translation->page_size - (translation->gpa & (translation->page_size - 1));

	return left < size ? (size_t)left : size;
}

int guest_read_virtual(const struct guest_view *view, const struct guest_paging *paging,
		       uint64_t gva, void *to, size_t size)
{
	uint8_t *bytes = to;

	while (size) {
		struct guest_translation translation;
		size_t part;

		if (guest_translate(view, paging, gva, &translation))
			return -EFAULT;
		part = left_in_page(&translation, size);
		if (guest_read_physical(view, translation.gpa, bytes, part))
			return -EFAULT;
		bytes += part;
		gva += part;
		size -= part;
	}
	return 0;
}

int guest_read_string(const struct guest_view *view, const struct guest_paging *paging,
		      uint64_t gva, char *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		/* Never reads into a page that the string does not reach. */
		size_t part = 64 - (gva + done) % 64;

		if (part > size - done)
			part = size - done;
		if (guest_read_virtual(view, paging, gva + done, to + done, part))
			return -EFAULT;
		if (memchr(to + done, 0, part))
			return 0;
		done += part;
	}
	return -ENAMETOOLONG;
}
