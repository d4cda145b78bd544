/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/loss_counts.h"

#include <assert.h>

static const struct {
	const char *name, *description;
} kinds[LOSS_COUNT] = {
	[LOSS_RING_FULL] = { "lost_overflow", "samples dropped: the recorder could not keep up" },
	[LOSS_NO_ADDRESS_SPACE] = { "lost_no_address_space",
				    "user-space samples of processes that no source reported" },
	[LOSS_NO_MAPPING] = { "lost_no_mapping",
			      "user-space samples at addresses without a known mapping" },
	[LOSS_CALLCHAIN_TRUNCATED] = { "callchain_truncated",
				       "incomplete call chains: the outermost callers are uncertain" },
	[LOSS_CALLCHAIN_NO_MAPPING] = { "callchain_no_mapping",
					"user-space callers at addresses without a known mapping" },
	[LOSS_SIDEBAND_LATE] = { "sideband_late",
				 "sideband events that came too late to be ordered" },
	[LOSS_SAMPLE_LATE] = { "sample_out_of_order", "samples that came too late to be ordered" },
	[LOSS_SIDEBAND_DROPPED] = { "sideband_missed",
				    "sideband events dropped: by the guest, or because the recorder "
				    "could not keep up" },
	[LOSS_SIDEBAND_INVALID] = { "sideband_refused",
				    "sideband events that were invalid, or lacked memory" },
	[LOSS_UNCERTAIN] = { "sample_uncertain",
			     "samples too close to a sideband event to determine the order" },
	[LOSS_OTHER_KERNEL] = { "sample_other_kernel",
				"unsymbolized samples of another kernel (reset, kexec, nested guest)" },
	[LOSS_GUEST_BREAKPOINT] = { "guest_breakpoint_lost",
				    "breakpoints of the guest that did not work because a watch used "
				    "their debug register" },
	[LOSS_CR3_UNKNOWN] = { "cr3_unknown",
			       "samples in page tables without a process: there are too many" },
	[LOSS_LOOKUP_INCOMPLETE] = { "lookup_incomplete",
				     "samples whose cgroup or mappings took too long to look up" },
};

const char *loss_name(enum loss loss)
{
	assert(loss < LOSS_COUNT);
	return kinds[loss].name;
}

const char *loss_description(enum loss loss)
{
	assert(loss < LOSS_COUNT);
	return kinds[loss].description;
}
