/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles .eh_frame and .eh_frame_hdr (LSB 5.0, Generic Part, 10.6) of an x86-64 image to a table.
 * The bytes are the guest's and untrusted; time and memory are bounded.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_EH_FRAME_H
#define KVMSCOPE_GUEST_UNWIND_EH_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/unwind/cfi_table.h"

/* A code segment of the image, as in its PT_LOAD. */
struct eh_segment {
	uint64_t address; /* as linked */
	uint64_t offset;  /* in the file */
	uint64_t size;    /* bytes */
};

struct eh_frame {
	struct span header; /* .eh_frame_hdr; empty: none, FRAMES is read from start to end */
	uint64_t header_address;
	struct span frames; /* .eh_frame; with a header more bytes may follow it */
	uint64_t frames_address;
	const struct eh_segment *segments;
	size_t segment_count;
};

/* Reads the address of .eh_frame from HEADER, which is at ADDRESS. -EINVAL: unknown format. */
int eh_frame_address(struct span header, uint64_t address, uint64_t *frames_address);

/*
 * Compiles the table. FDEs that cannot be read, or whose code is not in a segment, are left out:
 * nothing describes that code then. -EINVAL: unknown header format; -E2BIG: a limit of the table;
 * -ENOMEM. Takes about 40 ns for each byte of FRAMES, up to some seconds for hostile content, and
 * allocates: not on a vCPU thread.
 */
int eh_frame_compile(struct cfi_table **table, const struct eh_frame *eh_frame);

#endif
