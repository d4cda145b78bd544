/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/guest_view.h"

#include <errno.h>
#include <string.h>

/* The region that contains GPA, or NULL. There are few regions: a linear search is the fastest. */
static const struct guest_region *find_region(const struct guest_view *view, uint64_t gpa)
{
	for (size_t i = 0; i < view->region_count; i++)
		if (gpa - view->regions[i].gpa < view->regions[i].size)
			return &view->regions[i];
	return NULL;
}

static int read_region(const struct guest_view *view, const struct guest_region *region,
		       uint64_t gpa, void *to, size_t size)
{
	if (region->hva) {
		memcpy(to, region->hva + (gpa - region->gpa), size);
		return 0;
	}
	return view->read ? view->read(view, gpa, to, size) : -EFAULT;
}

/*
 * Removes our patches from BYTES, which were read from REGION at GPA. Not inlined: reads without
 * patches need no stack protector.
 */
static __attribute__((noinline)) int hide_patches(const struct guest_view *view,
						  const struct guest_region *region, uint64_t gpa,
						  void *bytes, size_t size)
{
	uint64_t end = gpa - region->gpa + size;
	uint8_t next = 0;
	int error = end < region->size ? read_region(view, region, gpa + size, &next, 1) : 0;

	if (!error)
		patches_hide(view->patches, gpa, bytes, size, next);
	return error;
}

int guest_read_physical(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	uint8_t *bytes = to;

	while (size) {
		const struct guest_region *region = find_region(view, gpa);
		uint64_t left;
		size_t part;

		if (!region)
			return -EFAULT;
		left = region->size - (gpa - region->gpa);
		part = left < size ? (size_t)left : size;
		if (read_region(view, region, gpa, bytes, part))
			return -EFAULT;
		if (view->patches && hide_patches(view, region, gpa, bytes, part))
			return -EFAULT;
		bytes += part;
		gpa += part;
		size -= part;
	}
	return 0;
}

const void *guest_physical_pointer(const struct guest_view *view, uint64_t gpa, size_t size)
{
	const struct guest_region *region = find_region(view, gpa);

	if (!region || !region->hva || region->size - (gpa - region->gpa) < size)
		return NULL;
	return region->hva + (gpa - region->gpa);
}
