/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest view: read access to guest memory, independent of which program owns the guest. The VMM's
 * own mapping and another process's memory look the same from here. Page walks, kallsyms,
 * introspection and unwinding are written against it.
 *
 * The guest is hostile: this is the one checked accessor, and nothing else turns a guest address
 * into a pointer. Memory is only ever read, and may change at any moment: copy first, then check
 * the copy.
 *
 * Any number of threads may read at the same time, while the guest runs.
 */
#ifndef KVMSCOPE_GUEST_VIEW_H
#define KVMSCOPE_GUEST_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/patches.h"

/* GPA range of guest RAM; hva is NULL where it is not mapped in this process. */
struct guest_region {
	uint64_t gpa;
	uint64_t size;
	const uint8_t *hva;
};

struct guest_translation;

struct guest_view {
	/* Sorted by gpa, not overlapping; owned by the creator of the view. */
	const struct guest_region *regions;
	size_t region_count;
	/* Reads from another process; NULL where every region has an hva. 0 or -EFAULT. */
	int (*read)(const struct guest_view *view, uint64_t gpa, void *to, size_t size);
	/*
	 * Translates a GVA in place of a page walk, for memory that was copied; NULL: none. The
	 * contract is that of guest_translate().
	 */
	int (*translate)(const struct guest_view *view, uint64_t gva,
			 struct guest_translation *translation);
	void *context;                 /* for read() and translate() */
	const struct patches *patches; /* our own patches in that memory; NULL: none */
	/*
	 * read() has another program do the work, so its cost is elapsed time, not the reader's CPU
	 * time.
	 */
	bool remote;
};

/*
 * Copies SIZE bytes of guest RAM at GPA, across adjacent regions, with our patches removed.
 * 0, or -EFAULT with TO undefined.
 */
int guest_read_physical(const struct guest_view *view, uint64_t gpa, void *to, size_t size);

/*
 * Returns a pointer to guest RAM [gpa, gpa + size), or NULL if that is not one range in this
 * process. The bytes may change at any time: read each once. For data only: our patches, which
 * are in code, are visible through the pointer.
 */
const void *guest_physical_pointer(const struct guest_view *view, uint64_t gpa, size_t size);

#endif
