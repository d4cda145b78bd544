/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/vma.h"

#include <string.h>

#define USER_END      0x0100000000000000ull /* with five levels of page tables */
#define DEPTH_MAX     64 /* of either tree; a red-black tree of 65536 VMAs has at most 32 levels */
#define MAPLE_NODE    (~(uint64_t)(MAPLE_NODE_SIZE - 1))
#define MAPLE_TYPE(n) ((uint32_t)((n) >> 3) & 15) /* lib/maple_tree.c, mte_node_type() */
/* include/linux/fs.h: FMODE_BACKING until 6.13 (later another flag's bit), and since 6.14. */
#define FMODE_MAYBE_BACKING (1u << 25 | 1u << 24)
#define IS_NODE(n)          (((n)&3) == 2) /* include/linux/xarray.h, xa_is_internal() */

static uint64_t word(const uint8_t *bytes, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, bytes + offset, sizeof(value));
	return value;
}

/*
 * lib/maple_tree.c, ma_data_end(): the slot of MAXIMUM, the last index in NODE. In some kinds of
 * nodes the byte with this number is in the last slot while that is unused.
 */
static uint32_t last_slot(const struct maple_node_layout *layout, const uint8_t *node,
			  uint64_t maximum)
{
	uint32_t last = layout->count - 1;
	uint64_t pivot = word(node, layout->pivots + 8 * (last - 1));

	if (layout->end >= layout->slots + 8 * layout->count || !pivot)
		return node[layout->end] < last ? node[layout->end] : last;
	return pivot == maximum ? last - 1 : last;
}

/* The entry for INDEX; *MAXIMUM becomes the last index of its range. */
static uint64_t maple_entry(const struct maple_node_layout *layout, const uint8_t *node,
			    uint64_t index, uint64_t *maximum)
{
	uint32_t last = last_slot(layout, node, *maximum), slot = 0;

	while (slot < last && word(node, layout->pivots + 8 * slot) < index)
		slot++;
	if (slot < layout->count - 1 && slot < last)
		*maximum = word(node, layout->pivots + 8 * slot);
	return word(node, layout->slots + 8 * slot);
}

/* A node that was removed from the tree is its own parent (lib/maple_tree.c, ma_dead_node()). */
static bool read_maple_node(struct kernel_memory *memory, uint64_t entry, uint8_t *node)
{
	return kernel_memory_read(memory, entry & MAPLE_NODE, node, MAPLE_NODE_SIZE) &&
	       (word(node, 0) & MAPLE_NODE) != (entry & MAPLE_NODE);
}

/* An entry that is a node has the kind of the node in its low bits. */
static uint64_t find_in_maple(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			      uint64_t mm, uint64_t address)
{
	uint64_t entry, maximum = UINT64_MAX;
	uint8_t node[MAPLE_NODE_SIZE];

	if (!kernel_memory_read_u64(memory, mm + layout->mm_root, &entry) || !IS_NODE(entry))
		return 0;
	for (int depth = 0; depth < DEPTH_MAX && read_maple_node(memory, entry, node); depth++) {
		uint32_t type = MAPLE_TYPE(entry);

		if (type == layout->maple_leaf)
			return maple_entry(&layout->range, node, address, &maximum);
		if (type == layout->maple_range)
			entry = maple_entry(&layout->range, node, address, &maximum);
		else if (type == layout->maple_arange)
			entry = maple_entry(&layout->arange, node, address, &maximum);
		else
			return 0;
	}
	return 0;
}

static uint64_t find_in_red_black(struct kernel_memory *memory,
				  const struct guest_vma_layout *layout, uint64_t mm,
				  uint64_t address)
{
	uint64_t node, range[2];

	if (!kernel_memory_read_u64(memory, mm + layout->mm_root, &node))
		return 0;
	for (int depth = 0; depth < DEPTH_MAX && node; depth++) {
		uint64_t vma = node - layout->vma_node;

		if (!kernel_memory_read_u64(memory, vma + layout->vma_start, &range[0]) ||
		    !kernel_memory_read_u64(memory, vma + layout->vma_end, &range[1]))
			return 0;
		if (address >= range[0] && address < range[1])
			return vma;
		if (!kernel_memory_read_u64(
			    memory,
			    node + (address < range[0] ? layout->node_left : layout->node_right),
			    &node))
			return 0;
	}
	return 0;
}

/* BYTES is a whole struct vm_area_struct. */
static bool decode(const struct guest_vma_layout *layout, const uint8_t *bytes, uint64_t mm,
		   uint64_t address, struct guest_vma *vma)
{
	*vma = (struct guest_vma){ .start = word(bytes, layout->vma_start),
				   .end = word(bytes, layout->vma_end),
				   .page = word(bytes, layout->vma_page),
				   .flags = word(bytes, layout->vma_flags),
				   .file = word(bytes, layout->vma_file),
				   .operations = word(bytes, layout->vma_operations) };
	return word(bytes, layout->vma_mm) == mm && address >= vma->start && address < vma->end &&
	       vma->end <= USER_END && !((vma->start | vma->end) & 4095) && vma->page < 1ull << 52;
}

static bool read_inode(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		       struct user_image_key *key)
{
	uint32_t generation, nanoseconds;

	if (!kernel_memory_read_u64(memory, key->inode + layout->inode_number, &key->number) ||
	    !kernel_memory_read(memory, key->inode + layout->inode_generation, &generation, 4) ||
	    !kernel_memory_read_u64(memory, key->inode + layout->inode_seconds, &key->seconds) ||
	    !kernel_memory_read(memory, key->inode + layout->inode_nanoseconds, &nanoseconds, 4))
		return false;
	key->generation = generation;
	key->nanoseconds = nanoseconds;
	return true;
}

static bool read_dentry(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			struct user_image_key *key)
{
	return kernel_memory_read_u64(memory, key->dentry + layout->dentry_parent, &key->parent) &&
	       kernel_memory_read_u64(memory, key->dentry + layout->dentry_hash, &key->name_hash);
}

static bool read_path_at(struct kernel_memory *memory, uint64_t mount, uint64_t dentry,
			 struct user_image_key *key)
{
	return kernel_memory_read_u64(memory, mount, &key->mount) &&
	       kernel_memory_read_u64(memory, dentry, &key->dentry);
}

/* The mode bit alone is ambiguous: the path is valid if both parts are of one file system. */
static bool read_backing_path(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			      uint64_t file, struct user_image_key *key)
{
	uint64_t of_mount, of_dentry;

	return read_path_at(memory, file + layout->backing_mount, file + layout->backing_dentry,
			    key) &&
	       kernel_memory_read_u64(memory, key->mount + layout->vfsmount_super, &of_mount) &&
	       kernel_memory_read_u64(memory, key->dentry + layout->dentry_super, &of_dentry) &&
	       of_mount && of_mount == of_dentry;
}

/* As file_user_path() (include/linux/fs.h): the path for users, whatever file system has the pages.
 */
static bool read_path(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		      uint64_t file, struct user_image_key *key)
{
	uint32_t mode = 0;

	if (layout->backing_mount &&
	    !kernel_memory_read(memory, file + layout->file_mode, &mode, sizeof(mode)))
		return false;
	if (mode & FMODE_MAYBE_BACKING && read_backing_path(memory, layout, file, key))
		return true;
	return read_path_at(memory, file + layout->file_mount, file + layout->file_dentry, key);
}

static bool identify_file(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			  uint64_t file, struct user_image_key *key)
{
	key->kind = USER_IMAGE_FILE;
	return read_path(memory, layout, file, key) &&
	       kernel_memory_read_u64(memory, file + layout->file_inode, &key->inode) &&
	       read_dentry(memory, layout, key) && read_inode(memory, layout, key);
}

/* Kinds as in fs/proc/task_mmu.c, show_map_vma(). */
static bool identify_anonymous(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			       uint64_t mm, const struct guest_vma *vma, struct user_image_key *key)
{
	uint64_t heap, heap_end, stack;

	if (!kernel_memory_read_u64(memory, mm + layout->mm_heap, &heap) ||
	    !kernel_memory_read_u64(memory, mm + layout->mm_heap_end, &heap_end) ||
	    !kernel_memory_read_u64(memory, mm + layout->mm_stack, &stack))
		return false;
	key->kind = USER_IMAGE_ANONYMOUS;
	if (vma->start <= stack && vma->end >= stack)
		key->kind = USER_IMAGE_STACK;
	else if (vma->start < heap_end && vma->end > heap)
		key->kind = USER_IMAGE_HEAP;
	return true;
}

static bool identify_special(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			     uint64_t mm, const struct guest_vma *vma, struct user_image_key *key)
{
	uint64_t vdso;

	if (!kernel_memory_read_u64(memory, mm + layout->mm_vdso, &vdso))
		return false;
	key->kind = vdso == vma->start ? USER_IMAGE_VDSO : USER_IMAGE_SPECIAL;
	return key->kind == USER_IMAGE_SPECIAL ||
	       kernel_memory_read_u64(memory, mm + layout->mm_vdso_image, &key->mount);
}

static bool is_special(const struct guest_vma_layout *layout, const struct guest_vma *vma)
{
	return vma->operations && (vma->operations == layout->special_operations ||
				   vma->operations == layout->old_special_operations);
}

static bool identify(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		     uint64_t mm, const struct guest_vma *vma, struct user_image_key *key)
{
	memset(key, 0, sizeof(*key));
	if (vma->file)
		return identify_file(memory, layout, vma->file, key);
	if (is_special(layout, vma))
		return identify_special(memory, layout, mm, vma, key);
	return identify_anonymous(memory, layout, mm, vma, key);
}

static uint64_t find_in_tree(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			     uint64_t mm, uint64_t address)
{
	return layout->is_maple ? find_in_maple(memory, layout, mm, address)
				: find_in_red_black(memory, layout, mm, address);
}

bool guest_vma_find(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		    uint64_t mm, uint64_t address, struct guest_vma *vma,
		    struct user_image_key *key)
{
	uint8_t bytes[VMA_SIZE_MAX], again[VMA_SIZE_MAX];
	struct guest_vma found;
	uint64_t at;

	if (!layout->known || address >= USER_END)
		return false;
	at = find_in_tree(memory, layout, mm, address);
	if (!at || !kernel_memory_read(memory, at, bytes, layout->vma_size) ||
	    !decode(layout, bytes, mm, address, vma) || !identify(memory, layout, mm, vma, key))
		return false;
	/*
	 * A mapping holds a reference on its file: while the VMA is unchanged, what was read of the
	 * file is valid. A VMA that was unmapped keeps its content until its memory is reused, but
	 * is no longer in the tree.
	 */
	return kernel_memory_read(memory, at, again, layout->vma_size) &&
	       decode(layout, again, mm, address, &found) && !memcmp(vma, &found, sizeof(found)) &&
	       find_in_tree(memory, layout, mm, address) == at;
}

bool guest_vma_is_same_file(struct kernel_memory *memory, const struct guest_vma_layout *layout,
			    const struct user_image_key *key)
{
	struct user_image_key now = {
		.kind = key->kind, .mount = key->mount, .dentry = key->dentry, .inode = key->inode
	};

	return read_dentry(memory, layout, &now) && read_inode(memory, layout, &now) &&
	       !memcmp(&now, key, sizeof(now));
}
