/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page walk: 4- and 5-level paging with large pages, 32-bit and PAE paging, paging off. SDM
 * vol. 3A ch. 4.
 */
#ifndef KVMSCOPE_GUEST_PAGE_WALK_H
#define KVMSCOPE_GUEST_PAGE_WALK_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

struct guest_translation {
	uint64_t gpa;       /* of the requested byte */
	uint64_t page_size; /* bytes: 4 KiB, 2 or 4 MiB, 1 GiB */
	/* Bits 0 to 11 and 63 of the leaf entry. Without paging: present, user, executable. */
	uint64_t flags;
};

/*
 * Translates GVA. -EFAULT if it is not present or not canonical, or if the tables leave guest RAM.
 * Does not check permissions and never writes accessed bits.
 */
int guest_translate(const struct guest_view *view, const struct guest_paging *paging, uint64_t gva,
		    struct guest_translation *translation);

/* Copies SIZE bytes at GVA, across pages. 0, or -EFAULT with TO undefined. */
int guest_read_virtual(const struct guest_view *view, const struct guest_paging *paging,
		       uint64_t gva, void *to, size_t size);

/* Reads a NUL-terminated string into SIZE bytes. -EFAULT, or -ENAMETOOLONG without a NUL. */
int guest_read_string(const struct guest_view *view, const struct guest_paging *paging,
		      uint64_t gva, char *to, size_t size);

#endif
