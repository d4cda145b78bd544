/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame and .eh_frame_hdr (LSB 5.0, Generic Part, 10.6) of an x86-64
 * image, compiled into a table. The bytes are the guest's: nothing in them is
 * believed, and what they cost is bounded.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_EH_FRAME_H
#define KVMSCOPE_GUEST_UNWIND_EH_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/unwind/cfi_table.h"

/* A part of the image that is code, all numbers as in its PT_LOAD. */
struct eh_segment {
	uint64_t address; /* as linked */
	uint64_t offset;  /* in the file */
	uint64_t size;    /* bytes */
};

struct eh_frame {
	struct span
		header; /* .eh_frame_hdr; empty: there is none, FRAMES are read from begin to end */
	uint64_t header_address;
	struct span frames; /* .eh_frame, and perhaps bytes behind it if there is a header */
	uint64_t frames_address;
	const struct eh_segment *segments;
	size_t segment_count;
};

/* Where HEADER, which lies at ADDRESS, says that .eh_frame begins. -EINVAL: it is none that is
 * known. */
int eh_frame_address(struct span header, uint64_t address, uint64_t *frames_address);

/*
 * Makes the table. An FDE that can not be read, or whose code is not in a
 * segment, is left out: its code is as if nothing described it. -EINVAL: the header is
 * none that is known; -E2BIG: the limits of the table; -ENOMEM. Takes some 40 ns
 * for each byte of FRAMES, up to some seconds where they are made for that, and allocates: not on a
 * vCPU thread.
 */
int eh_frame_compile(struct cfi_table **table, const struct eh_frame *eh_frame);

#endif
