/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/page_cache.h"

#define PAGE_SIZE   4096ull
#define DEPTH_MAX   16
#define SIBLING_MAX 4096u

/* The low bits of an entry: a page has none. That of a node says which kind of tree it is of. */
#define TAGS 3u
#define XARRAY_NODE                                                                                \
	2u /* include/linux/xarray.h; with higher addresses than any that stands for a slot */
#define RADIX_NODE 1u /* include/linux/radix-tree.h, to 4.19 */

static uint64_t node_tag(const struct guest_vma_layout *layout)
{
	return layout->is_radix_tree ? RADIX_NODE : XARRAY_NODE;
}

static bool is_internal(const struct guest_vma_layout *layout, uint64_t entry)
{
	return (entry & TAGS) == node_tag(layout);
}

static bool is_node(const struct guest_vma_layout *layout, uint64_t entry)
{
	return is_internal(layout, entry) && entry > SIBLING_MAX;
}

static bool read_slot(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		      uint64_t node, uint32_t slot, uint64_t *entry)
{
	return kernel_memory_read_u64(memory, node + layout->xarray_slots + 8ull * slot, entry);
}

/*
 * Is INDEX below ENTRY, which is the root? One that is a page is that of index 0 alone, and a tree
 * is as high as what is in it needs: include/linux/xarray.h, lib/xarray.c, xas_start().
 */
static bool root_covers(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t entry, uint64_t index)
{
	uint8_t shift;

	if (!is_node(layout, entry))
		return !index;
	return kernel_memory_read(memory, entry - node_tag(layout) + layout->xarray_shift, &shift,
				  1) &&
	       shift <= 60 && index >> shift < layout->xarray_slot_count;
}

/*
 * Goes one level down for page INDEX. A folio of several pages stands in the slot of its first; the
 * others say which that is. *FIRST becomes the index of that.
 */
static bool descend(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		    uint64_t index, uint64_t *entry, uint64_t *first)
{
	uint64_t node = *entry - node_tag(layout);
	uint32_t slot, count = layout->xarray_slot_count;
	uint8_t shift;

	if (!kernel_memory_read(memory, node + layout->xarray_shift, &shift, 1) || shift > 60)
		return false;
	slot = (uint32_t)(index >> shift) & (count - 1);
	if (!read_slot(memory, layout, node, slot, entry))
		return false;
	if (is_internal(layout, *entry) && *entry <= SIBLING_MAX) {
		slot = (uint32_t)(*entry >> 2);
		if (slot >= count || !read_slot(memory, layout, node, slot, entry))
			return false;
	}
	if (!is_node(layout, *entry)) {
		uint64_t span = (uint64_t)count << shift;

		*first = (index & ~(span - 1)) | (uint64_t)slot << shift;
	}
	return true;
}

/* GVA of the struct page of the page at INDEX, or of its folio's first, whose index becomes *FIRST.
 */
static bool find_page(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		      uint64_t mapping, uint64_t index, uint64_t *page, uint64_t *first)
{
	uint64_t entry;

	*first = 0;
	if (!kernel_memory_read_u64(memory, mapping + layout->mapping_pages, &entry) ||
	    !root_covers(memory, layout, entry, index))
		return false;
	for (int depth = 0; depth < DEPTH_MAX && is_node(layout, entry); depth++)
		if (!descend(memory, layout, index, &entry, first))
			return false;
	*page = entry;
	return entry && !(entry & TAGS) && index >= *first;
}

/* Pages are in the tree before they are read from the disk (mm/filemap.c): until then they have
 * what was in them before. */
static bool is_filled(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		      uint64_t page)
{
	uint64_t flags;

	return kernel_memory_read_u64(memory, page + layout->page_flags, &flags) &&
	       flags >> layout->page_uptodate & 1;
}

/* What is mapped where changes; a page is this file's if it says so itself. */
static bool find_memory(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t mapping, uint64_t index, uint64_t *gpa)
{
	uint64_t page, first, owner, array;

	if (!find_page(memory, layout, mapping, index, &page, &first) ||
	    !kernel_memory_read_u64(memory, page + layout->page_mapping, &owner) ||
	    owner != mapping || !is_filled(memory, layout, page) ||
	    !kernel_memory_read_u64(memory, layout->page_array, &array) || page < array ||
	    (page - array) % layout->page_size)
		return false;
	*gpa = ((page - array) / layout->page_size + (index - first)) * PAGE_SIZE;
	return true;
}

/* The page is the file's before and behind the copy, so it was so all the while, or was so again:
 * its bytes are. */
static bool read_in_page(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			 uint64_t mapping, uint64_t offset, void *to, size_t size)
{
	uint64_t gpa, again;

	return find_memory(memory, layout, mapping, offset / PAGE_SIZE, &gpa) &&
	       !guest_read_physical(memory->view, gpa + offset % PAGE_SIZE, to, size) &&
	       find_memory(memory, layout, mapping, offset / PAGE_SIZE, &again) && again == gpa;
}

bool page_cache_read(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		     uint64_t inode, uint64_t offset, void *to, size_t size)
{
	uint64_t mapping;
	uint8_t *bytes = to;

	if (!layout->has_pages || offset + size < offset ||
	    !kernel_memory_read_u64(memory, inode + layout->inode_mapping, &mapping))
		return false;
	while (size) {
		uint64_t left = PAGE_SIZE - offset % PAGE_SIZE;
		size_t part = left < size ? (size_t)left : size;

		if (!read_in_page(memory, layout, mapping, offset, bytes, part))
			return false;
		bytes += part;
		offset += part;
		size -= part;
	}
	return true;
}
