/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/vma_layout.h"

#include <errno.h>
#include <string.h>

#define SLOTS_MAX 31u /* of a maple node */

static bool find_node(struct maple_node_layout *layout, const struct btf *btf, const char *type)
{
	const struct btf_offset offsets[] = {
		{ type, "pivot", 8, &layout->pivots },
		{ type, "slot", 8, &layout->slots },
		{ type, "meta.end", 1, &layout->end },
	};
	struct btf_member slots, pivots;

	/* With all offsets below this, sums of them do not overflow. */
	if (btf_size(btf, btf_find_struct(btf, type)) > MAPLE_NODE_SIZE ||
	    !BTF_FIND_OFFSETS(btf, offsets) || !btf_find_path(btf, type, "slot", &slots) ||
	    !btf_find_path(btf, type, "pivot", &pivots))
		return false;
	layout->count = btf_array_length(btf, slots.type);
	return layout->count > 1 && layout->count <= SLOTS_MAX &&
	       btf_array_length(btf, pivots.type) == layout->count - 1 &&
	       layout->slots + 8 * layout->count <= MAPLE_NODE_SIZE &&
	       layout->pivots + 8 * (layout->count - 1) <= MAPLE_NODE_SIZE &&
	       layout->end < MAPLE_NODE_SIZE;
}

static bool find_maple(struct guest_vma_layout *layout, const struct btf *btf)
{
	layout->is_maple =
		btf_find_offset(btf, "mm_struct", "mm_mt.ma_root", 8, &layout->mm_root) &&
		btf_find_enumerator(btf, "maple_leaf_64", &layout->maple_leaf) &&
		btf_find_enumerator(btf, "maple_range_64", &layout->maple_range) &&
		btf_find_enumerator(btf, "maple_arange_64", &layout->maple_arange) &&
		find_node(&layout->range, btf, "maple_range_64") &&
		find_node(&layout->arange, btf, "maple_arange_64");
	return layout->is_maple;
}

static bool find_red_black(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "mm_struct", "mm_rb.rb_node", 8, &layout->mm_root },
		{ "vm_area_struct", "vm_rb", 24, &layout->vma_node },
		{ "rb_node", "rb_left", 8, &layout->node_left },
		{ "rb_node", "rb_right", 8, &layout->node_right },
	};

	return BTF_FIND_OFFSETS(btf, offsets);
}

/* Only lookups after the stop need these (deferred_lookup.h). */
static void find_changes(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "mm_struct", "context.ctx_id", 8, &layout->mm_space },
		{ "mm_struct", "context.tlb_gen", 8, &layout->mm_changes },
	};

	layout->has_changes = BTF_FIND_OFFSETS(btf, offsets);
}

static bool find_vma(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "mm_struct", "start_stack", 8, &layout->mm_stack },
		{ "mm_struct", "start_brk", 8, &layout->mm_heap },
		{ "mm_struct", "brk", 8, &layout->mm_heap_end },
		{ "mm_struct", "context.vdso", 8, &layout->mm_vdso },
		{ "mm_struct", "context.vdso_image", 8, &layout->mm_vdso_image },
		{ "vm_area_struct", "vm_start", 8, &layout->vma_start },
		{ "vm_area_struct", "vm_end", 8, &layout->vma_end },
		{ "vm_area_struct", "vm_mm", 8, &layout->vma_mm },
		{ "vm_area_struct", "vm_flags", 8, &layout->vma_flags },
		{ "vm_area_struct", "vm_pgoff", 8, &layout->vma_page },
		{ "vm_area_struct", "vm_file", 8, &layout->vma_file },
		{ "vm_area_struct", "vm_ops", 8, &layout->vma_operations },
		{ "vdso_image", "data", 8, &layout->vdso_data },
		{ "vdso_image", "size", 8, &layout->vdso_size },
	};

	find_changes(layout, btf);
	layout->vma_size = btf_size(btf, btf_find_struct(btf, "vm_area_struct"));
	return layout->vma_size <= VMA_SIZE_MAX && BTF_FIND_OFFSETS(btf, offsets);
}

/* Until 6.10 seconds and nanoseconds were one member, until 6.5 with another name. */
static bool find_change_time(struct guest_vma_layout *layout, const struct btf *btf)
{
	static const char *const names[][2] = { { "i_ctime_sec", "i_ctime_nsec" },
						{ "__i_ctime.tv_sec", "__i_ctime.tv_nsec" },
						{ "i_ctime.tv_sec", "i_ctime.tv_nsec" } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct btf_offset offsets[] = {
			{ "inode", names[i][0], 8, &layout->inode_seconds },
			{ "inode", names[i][1], 4, &layout->inode_nanoseconds },
		};

		if (BTF_FIND_OFFSETS(btf, offsets))
			return true;
	}
	return false;
}

static bool find_file(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "file", "f_path.mnt", 8, &layout->file_mount },
		{ "file", "f_path.dentry", 8, &layout->file_dentry },
		{ "file", "f_inode", 8, &layout->file_inode },
		{ "dentry", "d_parent", 8, &layout->dentry_parent },
		{ "dentry", "d_name.hash_len", 8, &layout->dentry_hash },
		{ "dentry", "d_name.name", 8, &layout->dentry_name },
		{ "dentry", "d_hash.pprev", 8, &layout->dentry_unhashed },
		{ "mount", "mnt", 8, &layout->mount_embedded },
		{ "mount", "mnt_parent", 8, &layout->mount_parent },
		{ "mount", "mnt_mountpoint", 8, &layout->mount_point },
		{ "mount", "mnt_ns", 8, &layout->mount_namespace },
		{ "vfsmount", "mnt_root", 8, &layout->vfsmount_root },
		{ "inode", "i_ino", 8, &layout->inode_number },
		{ "inode", "i_generation", 4, &layout->inode_generation },
		{ "inode", "i_sb", 8, &layout->inode_super },
		{ "super_block", "s_dev", 4, &layout->super_device },
	};

	return BTF_FIND_OFFSETS(btf, offsets) && find_change_time(layout, btf);
}

static void find_backing(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "file", "f_mode", 4, &layout->file_mode },
		{ "backing_file", "user_path.mnt", 8, &layout->backing_mount },
		{ "backing_file", "user_path.dentry", 8, &layout->backing_dentry },
		{ "dentry", "d_sb", 8, &layout->dentry_super },
		{ "vfsmount", "mnt_sb", 8, &layout->vfsmount_super },
	};

	if (!BTF_FIND_OFFSETS(btf, offsets))
		layout->backing_mount = 0;
}

static uint64_t address_of(const struct symbols *symbols, const char *name)
{
	struct symbol symbol;

	return symbols_find_name(symbols, name, &symbol) ? symbol.start : 0;
}

/* include/linux/fs.h, struct address_space: until 4.19 a radix tree, until 4.16 with another name.
 */
static bool find_page_root(struct guest_vma_layout *layout, const struct btf *btf)
{
	const struct btf_offset roots[] = {
		{ "address_space", "i_pages.xa_head", 8, &layout->mapping_pages },
		{ "address_space", "i_pages.rnode", 8, &layout->mapping_pages },
		{ "address_space", "page_tree.rnode", 8, &layout->mapping_pages },
	};

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
		if (btf_find_offsets(btf, &roots[i], 1)) {
			layout->is_radix_tree = i > 0;
			return true;
		}
	return false;
}

static bool find_page_nodes(struct guest_vma_layout *layout, const struct btf *btf)
{
	const char *node = layout->is_radix_tree ? "radix_tree_node" : "xa_node";
	const struct btf_offset offsets[] = {
		{ node, "shift", 1, &layout->xarray_shift },
		{ node, "slots", 8, &layout->xarray_slots },
	};
	struct btf_member slots;

	if (!BTF_FIND_OFFSETS(btf, offsets) || !btf_find_path(btf, node, "slots", &slots))
		return false;
	layout->xarray_slot_count = btf_array_length(btf, slots.type);
	return layout->xarray_slot_count &&
	       !(layout->xarray_slot_count & (layout->xarray_slot_count - 1));
}

static void find_pages(struct guest_vma_layout *layout, const struct symbols *symbols,
		       const struct btf *btf)
{
	const struct btf_offset offsets[] = {
		{ "inode", "i_mapping", 8, &layout->inode_mapping },
		{ "page", "mapping", 8, &layout->page_mapping },
		{ "page", "flags", 8, &layout->page_flags },
	};

	layout->page_array = address_of(symbols, "vmemmap_base");
	layout->page_size = btf_size(btf, btf_find_struct(btf, "page"));
	if (!layout->page_array || !layout->page_size || !BTF_FIND_OFFSETS(btf, offsets) ||
	    !btf_find_enumerator(btf, "PG_uptodate", &layout->page_uptodate) ||
	    layout->page_uptodate > 63)
		return;
	layout->has_pages = find_page_root(layout, btf) && find_page_nodes(layout, btf);
}

int guest_vma_layout_read(struct guest_vma_layout *layout, const struct symbols *symbols,
			  const struct btf *btf)
{

	memset(layout, 0, sizeof(*layout));
	if ((!find_maple(layout, btf) && !find_red_black(layout, btf)) || !find_vma(layout, btf) ||
	    !find_file(layout, btf))
		return -ENOENT;
	layout->special_operations = address_of(symbols, "special_mapping_vmops");
	layout->old_special_operations = address_of(symbols, "legacy_special_mapping_vmops");
	find_backing(layout, btf);
	find_pages(layout, symbols, btf);
	layout->known = true;
	return 0;
}
