// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/session_agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/attach/agent_vsock.h"
#include "vmm/session/agent_kernel.h"
#include "vmm/session/agent_names.h"
#include "vmm/session/guest_spaces.h"

/* A snapshot of a busy guest must fit while the collector does something else; what is not used
 * takes no memory. */
#define RING_SIZE   (2ul << 20)
#define SPACES_SIZE (512ul << 10)
/* Bytes of names in the cache, of one recording's programs. */
#define NAMES_SIZE (64ul << 20)

struct session_agent {
	struct session_agent_options options;
	struct ring *rings[SESSION_AGENT_RINGS]; /* the agent's, and that of page tables */
	struct guest_spaces *spaces;
	struct agent_names *names; /* NULL: they are not asked for */
	struct agent *agent;       /* NULL: not started */
	/* By vsock the guest connects, not we: */
	bool by_vsock;
	struct agent_vsock_address address;
	int listener; /* -1: not yet; the agent's thread's, as what follows */
	int refused;  /* negative errno of the latest try to connect; 0: it is connected */
};

/* Without a cache there is nowhere to put them; names are then missing, and nothing else. */
static void make_names(struct session_agent *agent)
{
	if (agent->options.names &&
	    agent_names_create(&agent->names, agent->options.place, NAMES_SIZE))
		log_warning("functions of the guest's programs will have no names: %s",
			    error_message());
}

static int make(struct session_agent *agent)
{
	int error;

	if (!guest_account_charge(agent->options.account, RING_SIZE))
		return error_set(-ENOMEM, "no memory for the ring of the guest agent");
	error = ring_create(&agent->rings[0], RING_SIZE);
	if (!error)
		error = ring_create(&agent->rings[1], SPACES_SIZE);
	if (error)
		return error_set(error, "can not make the ring of the guest agent: %s",
				 strerror(-error));
	make_names(agent);
	return guest_spaces_create(&agent->spaces, agent->rings[1]);
}

int session_agent_create(struct session_agent **result, const struct session_agent_options *options)
{
	struct session_agent *agent = calloc(1, sizeof(*agent));
	int error;

	if (!agent)
		return error_set(-ENOMEM, "no memory for the guest agent");
	agent->options = *options;
	agent->by_vsock = options->path && agent_vsock_parse(options->path, &agent->address);
	agent->listener = -1;
	error = make(agent);
	if (error)
		session_agent_destroy(agent);
	else
		*result = agent;
	return error;
}

struct ring *const *session_agent_rings(struct session_agent *agent)
{
	return agent->rings;
}

static int connect_by_vsock(struct session_agent *agent)
{
	if (agent->listener < 0)
		agent->listener = agent_vsock_listen(&agent->address);
	return agent->listener < 0 ? agent->listener
				   : agent_vsock_accept(agent->listener, &agent->address);
}

/* The agent's thread. */
static int connect_channel(void *context)
{
	struct session_agent *agent = context;
	int fd = agent->by_vsock
			 ? connect_by_vsock(agent)
			 : agent_channel_connect(agent->options.process, agent->options.path);

	if (fd < 0 && fd != agent->refused)
		log_debug("%s", error_message()); /* once: it is tried again and again */
	agent->refused = fd < 0 ? fd : 0;
	return fd;
}

/* The clock of a VM of others is known by messages alone: only its own VMM may ask KVM for the
 * TSC's offset.
 */
int session_agent_start(struct session_agent *agent)
{
	const struct agent_options options = {
		.fd = -1,
		.connect = connect_channel,
		.context = agent,
		.ring = agent->rings[0],
		.account = agent->options.account,
		.mappings = agent->names,
	};

	return agent_start(&agent->agent, &options);
}

void session_agent_see(struct session_agent *agent, const struct sideband_mmap *mapping)
{
	if (agent->names)
		agent_names_see(agent->names, agent->agent, mapping);
}

/* While nobody tells of processes, and of the guest's clock well enough, page tables serve nobody.
 */
static bool is_told(const struct agent_statistics *statistics)
{
	return statistics->open &&
	       statistics->features & (AGENT_FEATURE_EVENTS | AGENT_FEATURE_CONNECTOR) &&
	       statistics->clock_error < GUEST_SPACES_INTERVAL / 4;
}

void session_agent_turn(struct session_agent *agent, const struct guest_kernel *kernel,
			const struct guest_view *view)
{
	struct agent_statistics statistics;

	agent_statistics(agent->agent, &statistics);
	if (is_told(&statistics))
		guest_spaces_turn(agent->spaces, kernel, view);
	if (agent->names)
		agent_names_turn(agent->names, agent->agent);
}

struct reported_kernel *session_agent_kernel(struct session_agent *agent, uint64_t modules_hash)
{
	return agent_kernel_take(agent->agent, modules_hash);
}

int session_agent_tasks(struct session_agent *agent, bool ask, struct reported_tasks *told)
{
	return agent_kernel_take_tasks(agent->agent, ask, told);
}

void session_agent_statistics(struct session_agent *agent, struct agent_statistics *statistics)
{
	agent_statistics(agent->agent, statistics);
}

void session_agent_end(struct session_agent *agent)
{
	agent_end(agent->agent, NULL);
}

void session_agent_destroy(struct session_agent *agent)
{
	if (!agent)
		return;
	agent_stop(agent->agent, NULL);
	if (agent->listener >= 0)
		close(agent->listener);
	guest_spaces_destroy(agent->spaces);
	agent_names_destroy(agent->names);
	for (size_t i = 0; i < SESSION_AGENT_RINGS; i++)
		ring_destroy(agent->rings[i]);
	free(agent);
}
