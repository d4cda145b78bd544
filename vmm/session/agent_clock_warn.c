// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/agent_clock_warn.h"

#include "shared/log.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_tsc.h"

void agent_clock_warn(const struct agent_statistics *statistics)
{
	if (statistics->clock_unseen)
		log_warning(
			"this host's kernel does not tell the time by its TSC (" TSC_CLOCKSOURCES
			"/current_clocksource), so that KVM sets guests' clocks anew again and again: samples "
			"less than %u ms from a change of what was mapped have no names",
			AGENT_CLOCK_UNSEEN / 1000000);
	if (!statistics->vague)
		return;
	log_warning(
		"for %.1f s all answers of the guest agent took more than %u ms: names are missing where the "
		"guest's time was not known well enough. Give the guest's CPUs, and this process, more of the "
		"host's time",
		(double)statistics->vague / 1e9,
		(unsigned int)(AGENT_CLOCK_WIDTH_MAX - statistics->clock_unseen) / 1000000);
}
