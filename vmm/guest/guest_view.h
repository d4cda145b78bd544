/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest view: how guest memory is read, whoever the guest belongs to. The
 * VMM's own mapping and another process's memory look the same from here.
 * Page walks, kallsyms, introspection and unwinding are written against it.
 *
 * The guest is hostile: this is the one checked accessor. Nothing else turns
 * a guest address into a pointer. Memory is only ever read; what is read may
 * change under the reader at any moment, so copy first, check the copy.
 *
 * Any thread may read, several at a time, while the guest runs.
 */
#ifndef KVMSCOPE_GUEST_GUEST_VIEW_H
#define KVMSCOPE_GUEST_GUEST_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/patches.h"

/* GPA range that is guest RAM; hva is NULL where it is not mapped in this process. */
struct guest_region {
	uint64_t gpa;
	uint64_t size;
	const uint8_t *hva;
};

struct guest_translation;

struct guest_view {
	const struct guest_region
		*regions; /* sorted by gpa, not overlapping; owned by the maker of the view */
	size_t region_count;
	/* Reads from another process; NULL where every region has an hva. 0 or -EFAULT. */
	int (*read)(const struct guest_view *view, uint64_t gpa, void *to, size_t size);
	/*
	 * Translates a GVA instead of a walk through page tables, for memory that was copied; NULL:
	 * there is none. As guest_translate().
	 */
	int (*translate)(const struct guest_view *view, uint64_t gva,
			 struct guest_translation *translation);
	void *context;                 /* of read() and translate() */
	const struct patches *patches; /* ours in that memory; NULL for none */
	/*
	 * read() asks another program, which does the work: what it costs is told by the time that
	 * passes, not by the reader's CPU time.
	 */
	bool remote;
};

/*
 * Copies SIZE bytes of guest RAM at GPA, across regions that touch, as they are
 * without our patches. 0, or -EFAULT and TO undefined.
 */
int guest_read_physical(const struct guest_view *view, uint64_t gpa, void *to, size_t size);

/*
 * A pointer to guest RAM [gpa, gpa + size), or NULL if it is not one range in
 * this process. The bytes may change at any time: read each once. For data:
 * our patches, which are in code alone, are seen through it.
 */
const void *guest_physical_pointer(const struct guest_view *view, uint64_t gpa, size_t size);

#endif
