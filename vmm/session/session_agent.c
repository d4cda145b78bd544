/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/session_agent.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/cpu_budget.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_tsc.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/session/page_table_scan.h"
#include "vmm/session/symbol_requests.h"

#define SCAN_RING_SIZE (512ul << 10)

struct session_agent {
	struct session_agent_options options;
	struct guest_account *account;
	struct ring *rings[2]; /* the agent's, that of page tables */
	size_t ring_count;
	struct page_table_scan *scan;    /* NULL: not needed */
	struct symbol_requests *symbols; /* NULL: symbols are not requested */
	struct agent *agent;             /* NULL: not started */
	/* Only for a vsock connection, where the guest connects to us: */
	bool by_vsock;
	struct agent_vsock_address address;
	int listener; /* -1: none yet; used by the agent's thread, as the next one */
	int refused;  /* negative errno of the latest attempt to connect; 0: connected */
};

/* Without a build-id cache the profile only lacks symbols. */
static void create_symbols(struct session_agent *agent, const struct build_id_cache_location *cache)
{
	size_t limit = agent->account ? agent->account->limit : GUEST_ACCOUNT_DEFAULT;

	if (symbol_requests_create(&agent->symbols, cache, limit))
		log_warning("the guest's user-space images will have no symbols: %s",
			    error_message());
}

static int add_ring(struct session_agent *agent, size_t size)
{
	int error = ring_create(&agent->rings[agent->ring_count], size);

	if (error)
		return error_set(error, "cannot create a ring for the guest agent: %s",
				 strerror(-error));
	agent->ring_count++;
	return 0;
}

static int create_rings(struct session_agent *agent)
{
	int error;

	if (!guest_account_charge(agent->account, agent->options.ring_size))
		return error_set(-ENOMEM, "no memory for the ring of the guest agent");
	error = add_ring(agent, agent->options.ring_size);
	if (error || !agent->options.scans_page_tables)
		return error;
	error = add_ring(agent, SCAN_RING_SIZE);
	return error ? error : page_table_scan_create(&agent->scan, agent->rings[1]);
}

int session_agent_create(struct session_agent **result, const struct session_agent_options *options,
			 struct guest_account *account, bool symbols,
			 const struct build_id_cache_location *cache)
{
	struct session_agent *agent = calloc(1, sizeof(*agent));
	int error;

	if (!agent) {
		if (options->fd >= 0)
			close(options->fd);
		return error_set(-ENOMEM, "no memory for the guest agent");
	}
	agent->options = *options;
	agent->account = account;
	agent->by_vsock = options->path && agent_vsock_parse(options->path, &agent->address);
	agent->listener = -1;
	error = create_rings(agent);
	if (error) {
		session_agent_destroy(agent);
		return error;
	}
	if (symbols)
		create_symbols(agent, cache);
	*result = agent;
	return 0;
}

struct ring *const *session_agent_rings(struct session_agent *agent, size_t *count)
{
	*count = agent->ring_count;
	return agent->rings;
}

static int connect_by_vsock(struct session_agent *agent)
{
	if (agent->listener < 0)
		agent->listener = agent_vsock_listen(&agent->address);
	return agent->listener < 0 ? agent->listener
				   : agent_vsock_accept(agent->listener, &agent->address);
}

/* The agent's thread. Each error is logged once, as the attempt is repeated every second. */
static int connect_channel(void *context)
{
	struct session_agent *agent = context;
	int fd = agent->by_vsock
			 ? connect_by_vsock(agent)
			 : agent_channel_connect(agent->options.process, agent->options.path);

	if (fd < 0 && fd != agent->refused)
		log_debug("%s", error_message());
	agent->refused = fd < 0 ? fd : 0;
	return fd;
}

int session_agent_start(struct session_agent *agent)
{
	const struct agent_options options = {
		.fd = agent->options.fd,
		.connect = agent->options.fd < 0 ? connect_channel : NULL,
		.context = agent,
		.ring = agent->rings[0],
		.account = agent->account,
		.tsc_known = agent->options.tsc_known,
		.tsc_offset = agent->options.tsc_offset,
		.mappings = agent->symbols,
	};

	agent->options.fd = -1;
	return agent_start(&agent->agent, &options);
}

void session_agent_add_mapping(struct session_agent *agent, const struct sideband_mmap *mapping)
{
	if (agent->symbols)
		symbol_requests_add_mapping(agent->symbols, agent->agent, mapping);
}

/* Page tables are of use only where the agent reports processes, with the guest's clock known well
 * enough. */
static bool reports_processes(struct session_agent *agent)
{
	struct agent_statistics statistics;

	agent_statistics(agent->agent, &statistics);
	return statistics.open &&
	       statistics.features & (AGENT_FEATURE_EVENTS | AGENT_FEATURE_CONNECTOR) &&
	       statistics.clock_error < PAGE_TABLE_SCAN_INTERVAL / 4;
}

void session_agent_turn(struct session_agent *agent, const struct guest_kernel *kernel,
			const struct guest_view *view)
{
	if (agent->scan && reports_processes(agent))
		page_table_scan_update(agent->scan, kernel, view);
	if (agent->symbols)
		symbol_requests_update(agent->symbols, agent->agent);
}

struct reported_kernel *session_agent_kernel(struct session_agent *agent, uint64_t modules_hash)
{
	return symbol_requests_kernel(agent->agent, modules_hash);
}

int session_agent_tasks(struct session_agent *agent, bool ask, struct reported_tasks *tasks)
{
	int error = agent_pop_tasks(agent->agent, tasks);

	if (error != -EAGAIN)
		return error;
	return ask && agent_request_tasks(agent->agent) ? -EOPNOTSUPP : -EAGAIN;
}

void session_agent_count(struct session_agent *agent, struct agent_statistics *statistics)
{
	*statistics = (struct agent_statistics){ 0 };
	if (agent->agent)
		agent_statistics(agent->agent, statistics);
}

void session_agent_end(struct session_agent *agent)
{
	if (agent->agent)
		agent_end(agent->agent, NULL);
}

void session_agent_report_symbols(const struct session_agent *agent)
{
	struct agent_statistics statistics;

	if (!agent->symbols || !agent->agent)
		return;
	agent_statistics(agent->agent, &statistics);
	symbol_requests_report(agent->symbols, &statistics);
}

void session_agent_destroy(struct session_agent *agent)
{
	if (!agent)
		return;
	if (agent->options.fd >= 0)
		close(agent->options.fd);
	agent_stop(agent->agent, NULL);
	if (agent->listener >= 0)
		close(agent->listener);
	page_table_scan_destroy(agent->scan);
	symbol_requests_destroy(agent->symbols);
	while (agent->ring_count)
		ring_destroy(agent->rings[--agent->ring_count]);
	free(agent);
}

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
	if (statistics->throttled >= NS_PER_S)
		log_warning(
			"for %.1f s the guest agent's messages waited, because they would have cost more than "
			"1/%u of a CPU",
			(double)statistics->throttled / NS_PER_S, CPU_BUDGET_SHARE);
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
