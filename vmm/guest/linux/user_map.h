/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User-space mappings of a stopped vCPU, looked up in the guest's own tree of VMAs during the stop,
 * for the addresses of one sample. Nothing about an address space is cached between stops, so a
 * result is never stale; only files are (user_image.h).
 *
 * The cost is bounded for any guest memory: at most USER_MAP_MAX mappings in one stop, about ten
 * reads each; an address in a mapping that was found needs none. The caller may set
 * MEMORY.deadline after user_map_begin(). When it has passed, lookups fail and MEMORY.timed_out is
 * set; earlier results stay valid.
 *
 *	user_map_begin(&map, kernel, view, task.mm);
 *	mapping = user_map_find(&map, rip);
 *	if (mapping && mapping->image)
 *		table = user_image_cfi(mapping->image);
 *	offset in the file = rip - mapping->start + mapping->offset
 *
 * On the vCPU thread: no lock, allocation or system call. Tests can fill in a map: MAPPINGS and
 * COUNT, with MM 0.
 */
#ifndef KVMSCOPE_GUEST_LINUX_USER_MAP_H
#define KVMSCOPE_GUEST_LINUX_USER_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/user_image.h"

struct guest_kernel;

#define USER_MAP_MAX 16 /* in one stop; the callers of a deep stack are in few images */

/* Subset of a VMA's flags, with the values of VM_*. */
enum user_mapping_flags {
	USER_MAPPING_READ = 1 << 0,
	USER_MAPPING_WRITE = 1 << 1,
	USER_MAPPING_EXEC = 1 << 2,
	USER_MAPPING_SHARED = 1 << 3, /* MAP_SHARED */
};

struct user_mapping {
	uint64_t start, end; /* GVA */
	uint64_t offset;     /* of START in the image, bytes; START itself without a file */
	uint32_t flags;      /* enum user_mapping_flags */
	/*
	 * NULL: unknown. Its name and unwind table may become known later. Valid as long as the
	 * kernel's images.
	 */
	struct user_image *image;
};

struct user_map {
	const struct guest_kernel *kernel; /* NULL: unknown */
	struct kernel_memory memory;       /* of the kernel */
	uint64_t mm;                       /* GVA of the task's struct mm_struct; 0: no lookups */
	unsigned int count;
	struct user_mapping mappings[USER_MAP_MAX]; /* found so far, in lookup order */
};

/* Resets MAP for a stop. MM is that of the running task (struct guest_task). */
void user_map_begin(struct user_map *map, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t mm);

/*
 * The mapping of ADDRESS, valid until the next user_map_begin(). NULL: nothing is mapped there, it
 * cannot be read or changed meanwhile, there were USER_MAP_MAX others, or the deadline has passed.
 */
const struct user_mapping *user_map_find(struct user_map *map, uint64_t address);
/* The same among the mappings found so far, without a lookup. */
const struct user_mapping *user_map_find_cached(const struct user_map *map, uint64_t address);
/*
 * Adds a MAPPING that was found otherwise and is known to exist at this stop; a no-op if MAP is
 * full.
 */
void user_map_add(struct user_map *map, const struct user_mapping *mapping);

/*
 * Writes the mappings with a known image to MAPPINGS, which has room for USER_MAP_MAX. Returns
 * their number.
 */
unsigned int user_map_to_sample(const struct user_map *map, struct sample_mapping *mappings);

#endif
