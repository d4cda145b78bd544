/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is mapped in user space of a stopped vCPU: looked up in the guest's own
 * tree of VMAs, at the stop, for the addresses that the sample has. So what is
 * found is what is there at that moment, whatever was mapped, unmapped or
 * executed before: nothing is remembered of an address space that could be
 * stale. What is remembered is files (user_image.h).
 *
 * Bounded, whatever is in guest memory: USER_MAP_MAX mappings of one stop, some
 * ten reads for each; an address that is in one of them needs none. A deadline of
 * MEMORY, to be set behind user_map_begin(), ends a look wherever it is: MEMORY is
 * late then, and only what was found before is known.
 *
 *	user_map_begin(&map, kernel, view, task.mm);
 *	mapping = user_map_find(&map, rip);
 *	if (mapping && mapping->image)
 *		table = user_image_cfi(mapping->image);
 *	offset in the file = rip - mapping->start + mapping->offset
 *
 * On the vCPU thread: no lock, allocation or system call. For tests a map can be
 * filled by hand: MAPPINGS and COUNT, with MM 0.
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

/* Of one stop. The callers of a deep stack are in few images. */
#define USER_MAP_MAX 16

/* A part of a VMA's flags: as PROT_* of Linux; and whether what is written there is seen by others.
 */
enum user_mapping_flags {
	USER_MAPPING_READ = 1 << 0,
	USER_MAPPING_WRITE = 1 << 1,
	USER_MAPPING_EXEC = 1 << 2,
	USER_MAPPING_SHARED = 1 << 3,
};

struct user_mapping {
	uint64_t start, end; /* GVA */
	uint64_t offset;     /* of START in the image, bytes; START itself where there is no file */
	uint32_t flags;      /* enum user_mapping_flags */
	/*
	 * NULL: it can not be told. Its name may be known later only, as may its unwind table; it
	 * lives as long as the kernel's images do.
	 */
	struct user_image *image;
};

struct user_map {
	const struct guest_kernel *kernel; /* NULL: none is known */
	struct kernel_memory memory;       /* of it */
	uint64_t mm; /* GVA of the task's struct mm_struct; 0: nothing is looked up */
	unsigned int count;
	struct user_mapping
		mappings[USER_MAP_MAX]; /* that were found, in the order of the questions */
};

/* Forgets what was found at another stop. MM is that of the task that runs: struct guest_task has
 * it. */
void user_map_begin(struct user_map *map, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t mm);

/*
 * What ADDRESS is in, valid until the next user_map_begin(). NULL: nothing is mapped there, or it
 * can not be read or changed while it was, or there were USER_MAP_MAX others, or the deadline has
 * passed.
 */
const struct user_mapping *user_map_find(struct user_map *map, uint64_t address);

/* The same, of what was found only: nothing is looked up. */
const struct user_mapping *user_map_find_cached(const struct user_map *map, uint64_t address);

/* MAPPING was found elsewhere, and is known to have been there at this stop. Where there is no room
 * it is not taken. */
void user_map_add(struct user_map *map, const struct user_mapping *mapping);

/* Puts what was found into MAPPINGS, USER_MAP_MAX at most; the number of those whose image can be
 * told. */
unsigned int user_map_to_sample(const struct user_map *map, struct sample_mapping *mappings);

#endif
