/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that is only memory: page tables, a kernel of a few functions with known code, and one
 * module. It replaces a Linux guest in tests of symbols and code that do not run it.
 */
#ifndef KVMSCOPE_TESTS_UNIT_FAKE_GUEST_H
#define KVMSCOPE_TESTS_UNIT_FAKE_GUEST_H

#include "vmm/symbols/build_id_cache.h"

#define FAKE_TEXT          0xffffffff9a000000ull
#define FAKE_MODULE        0xffffffffc0123000ull
#define FAKE_FUNCTION_SIZE 0x100ull /* each function starts at a multiple of it */
#define FAKE_FUNCTIONS     8
#define FAKE_INIT          0x10000ull /* text offset of a function that exists only at first */

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

/* TAG determines the build ID. SLIDE moves the kernel by a multiple of 2 MiB, as KASLR does. */
void fake_guest_make(struct fake_guest *guest, uint8_t tag, uint64_t slide, uint64_t module_start);
void fake_guest_free(struct fake_guest *guest);

/* The 2 MiB that are mapped at the kernel's start. */
uint8_t *fake_guest_code(struct fake_guest *guest);

#endif
