/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/user_map.h"

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/vma.h"

#define PAGE_SHIFT 12

void user_map_begin(struct user_map *map, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t mm)
{
	bool possible = kernel && kernel->vmas.known && kernel->images;

	map->kernel = kernel;
	map->mm = possible ? mm : 0;
	map->count = 0;
	map->memory =
		(struct kernel_memory){ .view = view, .paging = kernel ? &kernel->paging : NULL };
}

static void fill(struct user_mapping *mapping, const struct guest_vma *vma,
		 struct user_image *image)
{
	_Static_assert(USER_MAPPING_READ == VMA_READ && USER_MAPPING_WRITE == VMA_WRITE &&
			       USER_MAPPING_EXEC == VMA_EXEC && USER_MAPPING_SHARED == VMA_SHARED,
		       "flags of mappings and VMAs are equal");
	*mapping = (struct user_mapping){
		.start = vma->start,
		.end = vma->end,
		.offset = vma->file ? vma->page << PAGE_SHIFT : vma->start,
		.flags = (uint32_t)vma->flags & (VMA_READ | VMA_WRITE | VMA_EXEC | VMA_SHARED),
		.image = image,
	};
	/* The kernel's copy of the vDSO begins where the mapping does. */
	if (image && user_image_kind(image) == USER_IMAGE_VDSO)
		mapping->offset = 0;
}

const struct user_mapping *user_map_find_cached(const struct user_map *map, uint64_t address)
{
	for (unsigned int i = 0; i < map->count; i++)
		if (address - map->mappings[i].start <
		    map->mappings[i].end - map->mappings[i].start)
			return &map->mappings[i];
	return NULL;
}

void user_map_add(struct user_map *map, const struct user_mapping *mapping)
{
	if (map->count < USER_MAP_MAX)
		map->mappings[map->count++] = *mapping;
}

const struct user_mapping *user_map_find(struct user_map *map, uint64_t address)
{
	const struct user_mapping *found = user_map_find_cached(map, address);
	struct user_image_key key;
	struct guest_vma vma;

	if (found)
		return found;
	if (!map->mm || map->count == USER_MAP_MAX ||
	    !guest_vma_find(&map->memory, &map->kernel->vmas, map->mm, address, &vma, &key))
		return NULL;
	fill(&map->mappings[map->count], &vma, user_images_find(map->kernel->images, &key));
	return &map->mappings[map->count++];
}

unsigned int user_map_to_sample(const struct user_map *map, struct sample_mapping *mappings)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < map->count; i++) {
		const struct user_mapping *mapping = &map->mappings[i];

		if (!mapping->image)
			continue;
		mappings[count++] = (struct sample_mapping){
			.start = mapping->start,
			.end = mapping->end,
			.offset = mapping->offset,
			.image = user_image_number(mapping->image),
			.images = user_images_generation(map->kernel->images),
			.flags = mapping->flags
		};
	}
	return count;
}
