/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording could not tell, each kind by its own count. The counts
 * travel in the perf.data file (docs/perf-data.md) and stand in the footer of
 * a report where they are not zero.
 */
#ifndef KVMSCOPE_SHARED_LOSS_COUNTS_H
#define KVMSCOPE_SHARED_LOSS_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the file, which only grows at its end. */
enum loss {
	LOST_OVERFLOW,         /* samples that a full ring dropped */
	LOST_NO_ADDRESS_SPACE, /* samples in user space of a process that no source told of */
	LOST_NO_MAPPING, /* samples in user space at an address where nothing was known to be mapped
			  */
	CALLCHAIN_TRUNCATED,  /* samples whose callchain ends before its beginning */
	CALLCHAIN_NO_MAPPING, /* callers in user space at such addresses, or of such processes */
	SIDEBAND_LATE,        /* records of what happened that came too late to be put in order */
	SAMPLE_OUT_OF_ORDER,  /* samples that came too late to be put in order */
	SIDEBAND_MISSED,      /* records that the source itself could not keep */
	SIDEBAND_REFUSED,     /* records that were none, or for which there was no room */
	SAMPLE_UNCERTAIN,     /* samples in user space that came before or after a change: it is not
			       * known which
			       */
	SAMPLE_OTHER_KERNEL_RAN, /* samples taken in a kernel that is not the file's */
	GUEST_BREAKPOINT_LOST,   /* breakpoints of the guest's own whose register a watch had */
	CR3_NOT_NAMED,           /* samples in page tables for which a file has no process */
	LOOK_CUT,                /* samples whose look at cgroup and mappings took too long */
	LOSS_COUNT,
};

struct losses {
	uint64_t counts[LOSS_COUNT];
};

/* The name for a script: "lost_overflow". */
const char *loss_name(enum loss loss);
/* What it is, for a reader: "samples dropped as a ring was full". */
const char *loss_meaning(enum loss loss);

static inline bool losses_any(const struct losses *losses)
{
	for (int i = 0; i < LOSS_COUNT; i++)
		if (losses->counts[i])
			return true;
	return false;
}

static inline void losses_add(struct losses *to, const struct losses *more)
{
	for (int i = 0; i < LOSS_COUNT; i++)
		to->counts[i] += more->counts[i];
}

#endif
