/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks VMA trees, dentries, mounts and the page cache in arbitrary memory. Input: struct header,
 * which also has the layout, then the pages that repeat over the whole address space.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mapped_pages.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_map.h"

#define MEMBER  0x1ffu /* largest offset of a member, as BTF would give it */
#define IN_NODE 0xf8u
#define OFFSETS 40
#define LOOKUPS 4

struct header {
	uint64_t mm, page_array, special_operations;
	uint64_t addresses[LOOKUPS];
	uint16_t offsets[OFFSETS];
	uint8_t is_maple, leaf, range, arange;
	uint8_t nodes[8];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* guest_vma_layout_read() ensures that slots and pivots are inside the node. */
static struct maple_node_layout node_of(const uint8_t *bytes)
{
	uint32_t count = 2 + bytes[0] % 14;

	return (struct maple_node_layout){ .count = count,
					   .pivots = bytes[1] % (MAPLE_NODE_SIZE - 8 * (count - 1)),
					   .slots = bytes[2] % (MAPLE_NODE_SIZE - 8 * count + 1),
					   .end = bytes[3] };
}

static struct guest_vma_layout layout_of(const struct header *header)
{
	struct guest_vma_layout layout = {
		.known = true,
		.is_maple = header->is_maple & 1,
		.maple_leaf = header->leaf & 15,
		.maple_range = header->range & 15,
		.maple_arange = header->arange & 15,
		.range = node_of(header->nodes),
		.arange = node_of(header->nodes + 4),
		.vma_size = VMA_SIZE_MAX,
		.special_operations = header->special_operations,
		.has_pages = header->is_maple & 2,
		.is_radix_tree = header->is_maple & 4,
		.page_size = 64,
		.page_uptodate = 63, /* a bit of page_mapping that is set in every kernel address */
		.page_array = header->page_array,
		.xarray_slot_count = 64,
	};
	uint32_t *const offsets[] = {
		&layout.mm_root,          &layout.vma_node,       &layout.node_left,
		&layout.node_right,       &layout.mm_stack,       &layout.mm_heap,
		&layout.mm_heap_end,      &layout.mm_vdso,        &layout.mm_vdso_image,
		&layout.vma_start,        &layout.vma_end,        &layout.vma_mm,
		&layout.vma_flags,        &layout.vma_page,       &layout.vma_file,
		&layout.vma_operations,   &layout.vdso_data,      &layout.vdso_size,
		&layout.file_mount,       &layout.file_dentry,    &layout.file_inode,
		&layout.dentry_parent,    &layout.dentry_hash,    &layout.dentry_name,
		&layout.dentry_unhashed,  &layout.mount_embedded, &layout.mount_parent,
		&layout.mount_point,      &layout.vfsmount_root,  &layout.inode_number,
		&layout.inode_generation, &layout.inode_seconds,  &layout.inode_nanoseconds,
		&layout.inode_super,      &layout.super_device,   &layout.inode_mapping,
		&layout.mapping_pages,    &layout.xarray_shift,   &layout.xarray_slots,
		&layout.page_mapping,
	};

	_Static_assert(sizeof(offsets) / sizeof(offsets[0]) == OFFSETS, "all of them");
	for (size_t i = 0; i < OFFSETS; i++)
		*offsets[i] = (header->offsets[i] & MEMBER) % (VMA_SIZE_MAX - 7);
	layout.page_flags = layout.page_mapping;
	layout.mount_namespace = layout.mount_parent;
	return layout;
}

static void check(const struct user_mapping *mapping, uint64_t address)
{
	if (!mapping)
		return;
	if (address < mapping->start || address >= mapping->end || mapping->end > 1ull << 56)
		abort();
}

static void check_image(struct user_image *image, const struct guest_kernel *kernel,
			const struct guest_view *view)
{
	const char *name = image ? user_image_name(image) : NULL;
	const uint8_t *build_id;
	uint8_t bytes[5000];

	if (!image)
		return;
	if (name && (!*name || strlen(name) >= PAGE))
		abort();
	if (user_image_build_id(image, &build_id) > IMAGE_BUILD_ID_MAX)
		abort();
	(void)user_image_read(image, kernel, view, 100, bytes, sizeof(bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .size = sizeof(guest_memory), .hva = guest_memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct guest_kernel kernel = { .paging = mapped_pages_paging };
	struct user_map map;
	struct header header;

	if (size < sizeof(header) || user_images_create(&kernel.images))
		return 0;
	memcpy(&header, data, sizeof(header));
	size -= sizeof(header);
	mapped_pages_fill(data + sizeof(header), size);
	kernel.vmas = layout_of(&header);
	user_map_begin(&map, &kernel, &view, header.mm);
	for (int i = 0; i < LOOKUPS; i++)
		check(user_map_find(&map, header.addresses[i]), header.addresses[i]);
	user_images_load(kernel.images, &kernel, &view);
	for (unsigned int i = 0; i < map.count; i++)
		check_image(map.mappings[i].image, &kernel, &view);
	user_images_free(kernel.images);
	return 0;
}
