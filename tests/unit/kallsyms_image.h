/* SPDX-License-Identifier: Apache-2.0 */
/* kallsyms tables as written by scripts/kallsyms.c of several kernel versions. For tests. */
#ifndef KVMSCOPE_TESTS_UNIT_KALLSYMS_IMAGE_H
#define KVMSCOPE_TESTS_UNIT_KALLSYMS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

enum kallsyms_layout {
	KALLSYMS_5_10, /* offsets, base, count, names, markers, tokens, index */
	KALLSYMS_6_2,  /* the same, with the sequence table after the markers */
	KALLSYMS_6_12, /* count, names, markers, tokens, index, offsets, base, sequence */
	KALLSYMS_7_2,  /* the same without padding, base and sequence last, offsets relative to
			  themselves */
	KALLSYMS_ABSOLUTE_BEFORE, /* 8-byte addresses first, as in 5.10 without
				     KALLSYMS_BASE_RELATIVE */
	KALLSYMS_32BIT, /* the order of 5.10, of a 32-bit kernel: addresses are base + offset */
	KALLSYMS_LAYOUTS,
};

struct kallsyms_symbol {
	uint64_t address;
	char type;
	char name[300];
};

/*
 * Writes the tables of COUNT symbols (sorted by address) to TO, which is GVA (8-byte aligned) in
 * the guest. RELATIVE_BASE is the kernel's _text. Returns the size, at most CAPACITY; aborts if it
 * does not fit.
 */
size_t kallsyms_image_write(enum kallsyms_layout layout, const struct kallsyms_symbol *symbols,
			    size_t count, uint64_t relative_base, uint64_t gva, uint8_t *to,
			    size_t capacity);

#endif
