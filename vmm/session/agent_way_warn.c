// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/agent_way_warn.h"

#include <errno.h>
#include <string.h>

#include "shared/log.h"

void agent_way_warn(const struct agent_statistics *statistics)
{
	const char *reason = strerror(-statistics->error);

	if (statistics->error == -EPROTONOSUPPORT)
		log_warning(
			"the guest agent speaks another version of the protocol, %u: install the "
			"kvmscope-agent that belongs to this kvmscope in the guest",
			statistics->version);
	else if (statistics->features & AGENT_FEATURE_CONNECTOR)
		log_warning(
			"the guest's kernel allows its agent no perf events (%s): what processes have "
			"mapped is known by netlink and /proc, some ms after they began and as of the last look",
			reason);
	else if (!(statistics->features & AGENT_FEATURE_EVENTS))
		log_warning("the guest agent (Linux %s) can not see processes: %s",
			    statistics->release, reason);
}
