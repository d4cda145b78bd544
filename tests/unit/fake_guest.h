/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that is only memory: page tables, a kernel of a few functions with
 * known code, one module. What stands in for a Linux guest where its names
 * and code matter and its running does not.
 */
#ifndef KVMSCOPE_TESTS_UNIT_FAKE_GUEST_H
#define KVMSCOPE_TESTS_UNIT_FAKE_GUEST_H

#include "vmm/symbols/build_id_cache.h"

#define FAKE_TEXT          0xffffffff9a000000ull
#define FAKE_MODULE        0xffffffffc0123000ull
#define FAKE_FUNCTION_SIZE 0x100ull /* each function starts at a multiple of it */
#define FAKE_FUNCTIONS     8
#define FAKE_INIT                                                                                  \
	0x10000ull /* from the start of the text: a function that was there only at first */

struct fake_guest {
	uint8_t *memory; /* owned */
	struct guest_region region;
	struct guest_view view;
	struct guest_paging paging;
	struct guest_module module;
	struct symbols *symbols; /* owned */
	uint8_t build_id[20];
	struct kernel_image image;
};

/* TAG makes the build id; SLIDE moves the kernel, as KASLR does, by a multiple of 2 MiB. */
void fake_guest_make(struct fake_guest *guest, uint8_t tag, uint64_t slide, uint64_t module_start);
void fake_guest_free(struct fake_guest *guest);

/* The bytes that are mapped at the kernel's start, 2 MiB of them. */
uint8_t *fake_guest_code(struct fake_guest *guest);

#endif
