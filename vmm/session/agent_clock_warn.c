// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/agent_clock_warn.h"

#include "shared/log.h"
#include "vmm/guest/agent_clock.h"

void agent_clock_warn(const struct agent_statistics *statistics)
{
	if (!statistics->vague)
		return;
	log_warning(
		"for %.1f s all answers of the guest agent took more than %u ms: names are missing where the "
		"guest's time was not known well enough. Give the guest's CPUs, and this process, more of the "
		"host's time",
		(double)statistics->vague / 1e9, AGENT_CLOCK_WIDTH_MAX / 1000000);
}
