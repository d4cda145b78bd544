/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the guest's kernel has the mappings of a process, by its BTF and symbols: the tree of VMAs
 * of an address space (a maple tree since 6.1, a red-black tree before), the file of each, its name
 * and its pages.
 */
#ifndef KVMSCOPE_GUEST_LINUX_VMA_LAYOUT_H
#define KVMSCOPE_GUEST_LINUX_VMA_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/symbol_table.h"

#define MAPLE_NODE_SIZE 256u /* and alignment (include/linux/maple_tree.h, MAPLE_NODE_MASK) */
#define VMA_SIZE_MAX    512u

/* Byte offsets in one kind of maple node. */
struct maple_node_layout {
	uint32_t pivots, slots, end; /* END: one byte, the index of the last slot in use */
	uint32_t count;              /* of slots; there is one pivot less */
};

/* Byte offsets in the structure that a member's name begins with. Immutable once read. */
struct guest_vma_layout {
	bool known; /* the rest is valid */
	bool is_maple;
	uint32_t mm_root;                               /* of the tree, in mm_struct */
	uint32_t maple_leaf, maple_range, maple_arange; /* enum maple_type */
	struct maple_node_layout range, arange;         /* leaves are laid out like range nodes */
	uint32_t vma_node, node_left, node_right;       /* of the red-black tree */
	uint32_t mm_stack, mm_heap, mm_heap_end;        /* start_stack, start_brk, brk */
	uint32_t mm_vdso, mm_vdso_image;                /* of its context */
	bool has_changes;                               /* the next two are known */
	uint32_t mm_space, mm_changes;                  /* of its context: ctx_id, tlb_gen */
	uint32_t vma_size;                              /* bytes to read of one */
	uint32_t vma_start, vma_end, vma_mm, vma_flags, vma_page, vma_file, vma_operations;
	/* GVAs of the vm_ops of the kernel's own mappings; 0: none. */
	uint64_t special_operations, old_special_operations;
	uint32_t vdso_data, vdso_size; /* in struct vdso_image */
	uint32_t file_mount, file_dentry, file_inode;
	/*
	 * The path by which a backing file was opened, as below overlayfs (since 6.7; before, the
	 * members above have it). backing_mount 0: the kernel has no backing files.
	 */
	uint32_t file_mode, backing_mount, backing_dentry, dentry_super, vfsmount_super;
	uint32_t dentry_parent, dentry_hash, dentry_name;
	uint32_t dentry_unhashed; /* d_hash.pprev */
	uint32_t mount_embedded, mount_parent, mount_point, mount_namespace, vfsmount_root;
	uint32_t inode_number, inode_generation, inode_seconds, inode_nanoseconds, inode_super;
	uint32_t super_device;
	bool has_pages;                        /* the page cache can be read */
	bool is_radix_tree;                    /* before Linux 4.20; else an xarray */
	uint32_t inode_mapping, mapping_pages; /* the tree's root: xa_head of i_pages */
	uint32_t xarray_shift, xarray_slots, xarray_slot_count; /* of nodes of either kind */
	uint32_t page_mapping, page_size;                       /* of struct page, bytes */
	uint32_t page_flags, page_uptodate; /* the latter is a bit of the former: enum pageflags */
	uint64_t page_array;                /* GVA of the variable vmemmap_base */
};

/* -ENOENT: a part is missing; LAYOUT->known is false. Not on a vCPU thread. */
int guest_vma_layout_read(struct guest_vma_layout *layout, const struct symbols *symbols,
			  const struct btf *btf);

#endif
