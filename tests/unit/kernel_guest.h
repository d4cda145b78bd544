/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flat guest with everything by which Linux is detected: kallsyms, an IDT, a banner and notes, in
 * a text page and a data page after it. A second kernel may be added, as by a kexec.
 */
#ifndef KVMSCOPE_TESTS_UNIT_KERNEL_GUEST_H
#define KVMSCOPE_TESTS_UNIT_KERNEL_GUEST_H

#include "tests/unit/flat_guest.h"
#include "tests/unit/kallsyms_image.h"

#define KERNEL_GUEST_SIZE    (16u << 20)
#define KERNEL_GUEST_PAGE    (2u << 20) /* of the text, and of the data after it */
#define KERNEL_GUEST_SYMBOLS 1000u
#define KERNEL_GUEST_BANNER  "Linux version 6.99.1-test (builder@host) (gcc) #1 SMP\n"

/* Offsets in the data */
#define KERNEL_GUEST_TABLES  0x10000u
#define KERNEL_GUEST_TICKS   0x2000u /* jiffies_64 */
#define KERNEL_GUEST_MODULES 0x2100u /* the head of the module list */
#define KERNEL_GUEST_BTF                                                                           \
	0x2800u /* empty, until a test writes tests/fuzz/corpus/btf/module                         \
		 * to it */
#define KERNEL_GUEST_BTF_SIZE 433u
#define KERNEL_GUEST_FREE     0x4000u /* size without the tables */
/* Offsets in the text */
#define KERNEL_GUEST_EARLY_HANDLERS (0x1000u + (KERNEL_GUEST_SYMBOLS - 5) * 0x40)

#define KERNEL_GUEST_HANDLERS 4
extern const unsigned int kernel_guest_vectors[KERNEL_GUEST_HANDLERS];

/* Addresses of a kernel: both are multiples of KERNEL_GUEST_PAGE. */
struct kernel_guest_location {
	uint64_t gva, gpa;
	const char *banner;
};

/*
 * Adds a kernel to GUEST, which was created, and sets its registers to run it, with CR3 at the
 * kernel's half of a pair of top tables. 3 pages of KERNEL_GUEST_PAGE below the tables remain free.
 */
void kernel_guest_start(struct flat_guest *guest, enum kallsyms_layout layout,
			const struct kernel_guest_location *place);

/* The handler of VECTOR in the IDT, which is the same for all. */
void kernel_guest_write_gate(struct flat_guest *guest, unsigned int vector, uint64_t handler);

#endif
