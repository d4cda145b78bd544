// SPDX-License-Identifier: Apache-2.0
#include "shared/loss_counts.h"

#include <assert.h>

static const struct {
	const char *name, *meaning;
} kinds[LOSS_COUNT] = {
	[LOST_OVERFLOW] = { "lost_overflow", "samples dropped: the recorder could not keep up" },
	[LOST_NO_ADDRESS_SPACE] = { "lost_no_address_space",
				    "samples in user space of processes that nothing told of" },
	[LOST_NO_MAPPING] = { "lost_no_mapping",
			      "samples in user space where nothing was known to be mapped" },
	[CALLCHAIN_TRUNCATED] = { "callchain_truncated",
				  "callchains without their outermost callers, which could not be told for certain" },
	[CALLCHAIN_NO_MAPPING] = { "callchain_no_mapping",
				   "callers in user space where nothing was known to be mapped" },
	[SIDEBAND_LATE] = { "sideband_late",
			    "events of the guest that came too late to be put in order" },
	[SAMPLE_OUT_OF_ORDER] = { "sample_out_of_order",
				  "samples that came too late to be put in order" },
	[SIDEBAND_MISSED] = { "sideband_missed",
			      "events of the guest that were dropped: by the guest, or as the recorder did not keep up" },
	[SIDEBAND_REFUSED] = { "sideband_refused",
			       "events of the guest that were broken, or for which there was no memory" },
	[SAMPLE_UNCERTAIN] = { "sample_uncertain",
			       "samples so close to an event of the guest that it is not sure which came first" },
	[SAMPLE_OTHER_KERNEL_RAN] = { "sample_other_kernel",
				      "samples without names, as the guest ran another kernel (reset, kexec, "
				      "a guest of its own)" },
	[GUEST_BREAKPOINT_LOST] = { "guest_breakpoint_lost",
				    "times a breakpoint of the guest's own did not work for it, as a watch had "
				    "its register" },
	[CR3_NOT_NAMED] = { "cr3_not_named",
			    "samples in page tables that are no process here: there are too many" },
	[LOOK_CUT] = { "look_cut", "samples for whose cgroup or all mappings there was no time" },
};

const char *loss_name(enum loss loss)
{
	assert(loss < LOSS_COUNT);
	return kinds[loss].name;
}

const char *loss_meaning(enum loss loss)
{
	assert(loss < LOSS_COUNT);
	return kinds[loss].meaning;
}
