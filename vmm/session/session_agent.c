/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/session_agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
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
