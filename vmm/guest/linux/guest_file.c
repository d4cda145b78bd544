/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page cache is an xarray (include/linux/xarray.h) of struct page by index in the file. The
 * index of a struct page in the array of all of them gives the page's address.
 */
#include "vmm/guest/linux/guest_file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define STEPS_MAX   512 /* names and mounts; a path has at most 2048 names of one letter */
#define PAGE_SIZE   4096ull
#define DEPTH_MAX   16
#define SIBLING_MAX 4096u

/* Low bits of an entry: 0 for a page; the value for a node depends on the kind of tree. */
#define TAGS        3u
#define XARRAY_NODE 2u /* include/linux/xarray.h; entries up to SIBLING_MAX refer to a slot */
#define RADIX_NODE  1u /* include/linux/radix-tree.h, until 4.19 */

static bool prepend_name(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			 uint64_t dentry, struct path_tail *path)
{
	char name[NAME_MAX];
	uint64_t hash, at;
	uint32_t length;

	if (!kernel_memory_read_u64(memory, dentry + layout->dentry_hash, &hash) ||
	    !kernel_memory_read_u64(memory, dentry + layout->dentry_name, &at))
		return false;
	length = (uint32_t)(hash >> 32);
	return length && length <= sizeof(name) && kernel_memory_read(memory, at, name, length) &&
	       !memchr(name, '\0', length) && path_tail_prepend(path, name, length) &&
	       path_tail_prepend(path, "/", 1);
}

/*
 * Steps from the root of a mount to its mount point. *IS_TOP: there is none, as for the first mount
 * of a namespace. A mount that was unmounted, as all are when the last process of a namespace ends,
 * has none either; its namespace is cleared before its parent (fs/namespace.c, umount_tree()).
 */
static bool leave_mount(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t *mount, uint64_t *dentry, bool *is_top)
{
	uint64_t own = *mount - layout->mount_embedded, parent, space;

	if (!kernel_memory_read_u64(memory, own + layout->mount_parent, &parent) ||
	    !kernel_memory_read_u64(memory, own + layout->mount_point, dentry) ||
	    !kernel_memory_read_u64(memory, own + layout->mount_namespace, &space) || !space)
		return false;
	*is_top = parent == own;
	*mount = parent + layout->mount_embedded;
	return true;
}

/* A dentry that is its own parent but not a mount's root is in no tree: shared memory, memfd. */
static bool prepend_all(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t mount, uint64_t dentry, struct path_tail *path)
{
	for (int step = 0; step < STEPS_MAX; step++) {
		uint64_t root, parent;
		bool is_top;

		if (!kernel_memory_read_u64(memory, mount + layout->vfsmount_root, &root))
			return false;
		if (dentry == root) {
			if (!leave_mount(memory, layout, &mount, &dentry, &is_top))
				return false;
			if (is_top)
				return true;
			continue;
		}
		if (!kernel_memory_read_u64(memory, dentry + layout->dentry_parent, &parent) ||
		    !prepend_name(memory, layout, dentry, path))
			return false;
		if (parent == dentry)
			return true;
		dentry = parent;
	}
	return false;
}

static bool build_path(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		       uint64_t mount, uint64_t dentry, struct path_tail *path)
{
	uint64_t hashed;

	if (!kernel_memory_read_u64(memory, dentry + layout->dentry_unhashed, &hashed))
		return false;
	path_tail_begin(path, hashed ? "" : " (deleted)");
	return prepend_all(memory, layout, mount, dentry, path) && *path_tail_text(path) == '/';
}

int guest_file_path(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		    uint64_t mount, uint64_t dentry, char *path)
{
	struct path_tail first, second;

	if (!build_path(memory, layout, mount, dentry, &first) ||
	    !build_path(memory, layout, mount, dentry, &second) ||
	    strcmp(path_tail_text(&first), path_tail_text(&second)) != 0)
		return -EFAULT;
	memcpy(path, path_tail_text(&first), strlen(path_tail_text(&first)) + 1);
	return 0;
}

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
 * Does the root ENTRY cover INDEX? A page as root has index 0, and a tree is only as high as its
 * entries need (lib/xarray.c, xas_start()).
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
 * Goes one level down for page INDEX. A folio of several pages is in the slot of its first page,
 * and the other slots refer to that one. *FIRST becomes the index of the first page.
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

/* GVA of the struct page at INDEX or of its folio's first page, whose index becomes *FIRST. */
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

/* Pages are in the tree before their content is read from disk (mm/filemap.c). */
static bool is_uptodate(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t page)
{
	uint64_t flags;

	return kernel_memory_read_u64(memory, page + layout->page_flags, &flags) &&
	       flags >> layout->page_uptodate & 1;
}

/* The tree changes concurrently: a page belongs to this file only if its struct page says so. */
static bool find_memory(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			uint64_t mapping, uint64_t index, uint64_t *gpa)
{
	uint64_t page, first, owner, array;

	if (!find_page(memory, layout, mapping, index, &page, &first) ||
	    !kernel_memory_read_u64(memory, page + layout->page_mapping, &owner) ||
	    owner != mapping || !is_uptodate(memory, layout, page) ||
	    !kernel_memory_read_u64(memory, layout->page_array, &array) || page < array ||
	    (page - array) % layout->page_size)
		return false;
	*gpa = ((page - array) / layout->page_size + (index - first)) * PAGE_SIZE;
	return true;
}

/* The page belongs to the file before and after the copy, so the copied bytes are the file's. */
static bool read_in_page(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			 uint64_t mapping, uint64_t offset, void *to, size_t size)
{
	uint64_t gpa, again;

	return find_memory(memory, layout, mapping, offset / PAGE_SIZE, &gpa) &&
	       !guest_read_physical(memory->view, gpa + offset % PAGE_SIZE, to, size) &&
	       find_memory(memory, layout, mapping, offset / PAGE_SIZE, &again) && again == gpa;
}

bool guest_file_read(struct kernel_memory *memory, const struct guest_vma_layout *layout,
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
