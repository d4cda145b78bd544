/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of a recording's accuracy, counted by kind. The counts are stored in the perf.data file
 * (docs/perf-data.md), and reports print those that are not zero.
 */
#ifndef KVMSCOPE_SHARED_LOSS_COUNTS_H
#define KVMSCOPE_SHARED_LOSS_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the file format: add new kinds at the end only. */
enum loss {
	LOSS_RING_FULL,            /* samples dropped because a ring was full */
	LOSS_NO_ADDRESS_SPACE,     /* user-space samples of a process that no source reported */
	LOSS_NO_MAPPING,           /* user-space samples at an address without a known mapping */
	LOSS_CALLCHAIN_TRUNCATED,  /* samples whose call chain is incomplete */
	LOSS_CALLCHAIN_NO_MAPPING, /* user-space callers without a known process or mapping */
	LOSS_SIDEBAND_LATE,        /* sideband events that came too late to be ordered */
	LOSS_SAMPLE_LATE,          /* samples that came too late to be ordered */
	LOSS_SIDEBAND_DROPPED,     /* sideband events dropped by their source */
	LOSS_SIDEBAND_INVALID,     /* sideband events that were invalid or that memory lacked for */
	/* user-space samples that may have been taken before or after a change of the mappings */
	LOSS_UNCERTAIN,
	LOSS_OTHER_KERNEL,      /* samples in another kernel than the file's */
	LOSS_GUEST_BREAKPOINT,  /* breakpoints of the guest whose debug register a watch used */
	LOSS_CR3_UNKNOWN,       /* samples in page tables for which the file has no process */
	LOSS_LOOKUP_INCOMPLETE, /* samples whose cgroup or mappings took too long to look up */
	LOSS_COUNT,
};

struct losses {
	uint64_t counts[LOSS_COUNT];
};

/* The name for scripts: "lost_overflow". */
const char *loss_name(enum loss loss);
/* A description for people. */
const char *loss_description(enum loss loss);

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
