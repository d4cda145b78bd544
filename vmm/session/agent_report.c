/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/agent_report.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "shared/log.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_tsc.h"

/* How the agent detects processes. False: it does not. */
static bool report_detection(const struct agent_statistics *statistics)
{
	const char *reason = strerror(-statistics->error);

	if (statistics->error == -EPROTONOSUPPORT)
		log_warning(
			"the guest agent speaks another version of the protocol, %u: install the "
			"kvmscope-agent of this kvmscope in the guest",
			statistics->version);
	else if (statistics->features & AGENT_FEATURE_CONNECTOR)
		log_warning(
			"the guest's kernel allows its agent no perf events (%s): processes are detected by "
			"netlink and /proc, some ms after they start",
			reason);
	else if (!(statistics->features & AGENT_FEATURE_EVENTS))
		log_warning("the guest agent (Linux %s) cannot see processes: %s",
			    statistics->release, reason);
	return statistics->features & (AGENT_FEATURE_EVENTS | AGENT_FEATURE_CONNECTOR);
}

static void report_losses(const struct agent_statistics *statistics)
{
	if (statistics->lost)
		log_warning(
			"%llu records of the guest's processes are lost: the agent could not fetch them in "
			"time, or their time is unknown",
			(unsigned long long)statistics->lost);
	if (statistics->unstable || statistics->cut)
		log_warning(
			"%llu processes and %llu mappings from before the recording are unknown",
			(unsigned long long)statistics->unstable,
			(unsigned long long)statistics->cut);
	if (statistics->refused)
		log_warning("%llu messages of the guest agent were invalid",
			    (unsigned long long)statistics->refused);
}

static void report_clock(const struct agent_statistics *statistics)
{
	if (statistics->clock_jumps)
		log_warning(
			"the guest's clock jumped %llu times: samples around those moments may lack symbols",
			(unsigned long long)statistics->clock_jumps);
	if (statistics->clock_kvm_drift)
		log_warning(
			"this host's clock source is not the TSC (" TSC_CLOCKSOURCES
			"/current_clocksource), so KVM keeps adjusting guest clocks: samples within %u ms "
			"of a change of mappings lack symbols",
			AGENT_CLOCK_KVM_DRIFT / 1000000);
	if (statistics->imprecise)
		log_warning(
			"for %.1f s all answers of the guest agent took more than %u ms: symbols are missing "
			"where the guest's time was not known well enough. Give the guest's vCPUs and this "
			"process more CPU time",
			(double)statistics->imprecise / 1e9,
			(unsigned int)(AGENT_CLOCK_WIDTH_MAX - statistics->clock_kvm_drift) /
				1000000);
}

static void report_kernel(const struct agent_statistics *statistics)
{
	/* After a success, a later request may fail for a passing reason, such as a module that is
	 * just being loaded. */
	int error = statistics->tables.kernels ? 0 : statistics->tables.kernel_error;

	if (error == -EPERM)
		log_warning("the guest agent may not read the kernel's symbols: "
			    "run sysctl kernel.kptr_restrict=1 in the guest");
	else if (error)
		log_warning("the guest agent cannot read the kernel's symbols: %s",
			    strerror(-error));
	if (statistics->tasks_error)
		log_warning(
			"the guest agent cannot start the tasks by which others would be found: %s",
			strerror(-statistics->tasks_error));
}

void agent_report(const struct agent_statistics *statistics)
{
	log_debug("guest agent: version %u, features %#x, %llu sessions, %llu records",
		  statistics->version, statistics->features,
		  (unsigned long long)statistics->sessions,
		  (unsigned long long)statistics->records);
	if (!report_detection(statistics))
		return;
	log_info("the guest agent reported the guest's processes; its clock is known to %.0f us%s",
		 (double)statistics->clock_error / 1e3, statistics->tsc_used ? " by the TSC" : "");
	report_losses(statistics);
	report_clock(statistics);
	report_kernel(statistics);
}
