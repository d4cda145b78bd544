// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/boot/agent_initrd.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/session/agent_clock_warn.h"
#include "vmm/session/agent_kernel.h"
#include "vmm/session/agent_names.h"
#include "vmm/session/agent_way_warn.h"

/* A snapshot of a busy guest, thousands of mappings, must fit while the collector does something
 * else. */
#define RING_SIZE (4ul << 20)

struct run_agent {
	const struct run_options *options;
	int machine_end, our_end; /* of a socketpair; -1 once given away */
	uint8_t *archive;
	size_t archive_size;
	char *command_line;
	struct guest_account account;
	struct ring *ring;
	struct agent *agent;
	struct agent_names *symbols; /* NULL: names are not asked for */
};

/* Without a cache there is nowhere to put them; names are then missing, and nothing else. */
static void make_symbols(struct run_agent *agent)
{
	if (agent->options->buildid_cache &&
	    agent_names_create(&agent->symbols, NULL, (size_t)agent->options->agent_memory))
		log_warning("functions of the guest's programs will have no names: %s",
			    error_message());
}

static int make(struct run_agent *agent, const struct run_options *options)
{
	int fds[2], error;

	if (options->agent == RUN_AGENT_INITRD) {
		agent->archive = agent_initrd_archive(&agent->archive_size);
		agent->command_line = agent_initrd_command_line(options->boot.append);
		if (!agent->archive || !agent->command_line)
			return error_set(-ENOMEM, "no memory for the guest agent");
	}
	guest_account_init(&agent->account, (size_t)options->agent_memory);
	guest_account_charge(&agent->account, RING_SIZE);
	error = ring_create(&agent->ring, RING_SIZE);
	if (error)
		return error_set(error, "can not make the ring of the guest agent: %s",
				 strerror(-error));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds))
		return error_set(-errno, "can not make the guest agent's socket: %s",
				 strerror(errno));
	agent->machine_end = fds[0];
	agent->our_end = fds[1];
	make_symbols(agent);
	return 0;
}

int run_agent_create(struct run_agent **result, const struct run_options *options)
{
	struct run_agent *agent = calloc(1, sizeof(*agent));
	int error;

	if (!agent)
		return error_set(-ENOMEM, "no memory for the guest agent");
	*agent = (struct run_agent){ .options = options, .machine_end = -1, .our_end = -1 };
	error = make(agent, options);
	if (error)
		run_agent_destroy(agent);
	else
		*result = agent;
	return error;
}

void run_agent_join(struct run_agent *agent, struct machine_options *machine)
{
	machine->agent_fd = agent->machine_end;
	if (!agent->archive)
		return;
	machine->boot.initrd_front = span_of(agent->archive, agent->archive_size);
	machine->boot.append = agent->command_line;
}

int run_agent_start(struct run_agent *agent, const struct vm *vm)
{
	struct agent_options options = { .fd = agent->our_end,
					 .ring = agent->ring,
					 .account = &agent->account,
					 .mappings = agent->symbols };

	/* The machine has its own copy; only so does the end of the guest end the socket. */
	close(agent->machine_end);
	agent->machine_end = agent->our_end = -1;
	options.tsc_known = !vm_tsc_offset(vm, &options.tsc_offset);
	if (!options.tsc_known)
		log_debug("the guest's clock is known by messages alone: %s", error_message());
	return agent_start(&agent->agent, &options);
}

struct ring *run_agent_ring(struct run_agent *agent)
{
	return agent->ring;
}

struct guest_account *run_agent_account(struct run_agent *agent)
{
	return &agent->account;
}

void run_agent_see_mapping(struct run_agent *agent, const struct sideband_mmap *mapping)
{
	if (agent->symbols)
		agent_names_see(agent->symbols, agent->agent, mapping);
}

struct reported_kernel *run_agent_kernel(struct run_agent *agent, uint64_t modules_hash)
{
	return agent_kernel_take(agent->agent, modules_hash);
}

int run_agent_tasks(struct run_agent *agent, bool ask, struct reported_tasks *told)
{
	return agent_kernel_take_tasks(agent->agent, ask, told);
}

void run_agent_turn(struct run_agent *agent)
{
	if (agent->symbols)
		agent_names_turn(agent->symbols, agent->agent);
}

static void tell_silence(const struct run_agent *agent)
{
	if (agent->options->agent == RUN_AGENT_INITRD)
		log_warning(
			"the guest agent did not answer: did the guest load virtio_console, and does its initrd have an init?");
	else
		log_warning(
			"no guest agent answered: is kvmscope-agent installed in the guest, and running?");
}

static void tell_omissions(const struct agent_statistics *statistics)
{
	if (statistics->lost)
		log_warning(
			"%llu records of the guest's processes are lost: the agent could not fetch them in time, or their time is not known",
			(unsigned long long)statistics->lost);
	if (statistics->unstable || statistics->cut)
		log_warning(
			"of what ran before the recording %llu processes and %llu mappings are not known",
			(unsigned long long)statistics->unstable,
			(unsigned long long)statistics->cut);
	if (statistics->refused)
		log_warning("%llu messages of the guest agent could not be understood",
			    (unsigned long long)statistics->refused);
	if (statistics->clock_jumps)
		log_warning(
			"the guest's clock jumped %llu times; names around those moments may be missing",
			(unsigned long long)statistics->clock_jumps);
}

/* When the collector has ended, too. */
static void tell_symbols(const struct run_agent *agent)
{
	unsigned long long without, dropped, not_fetched, waiting;
	struct agent_names_statistics symbols;
	struct agent_statistics statistics;
	const struct agent_tables_statistics *tables = &statistics.tables;

	if (!agent->symbols || !agent->agent)
		return;
	agent_statistics(agent->agent, &statistics);
	agent_names_statistics(agent->symbols, &symbols);
	without = tables->without + symbols.names.nameless;
	dropped = tables->dropped + symbols.names.dropped;
	not_fetched = tables->refused;
	waiting = 0;
	if (statistics.features &
	    AGENT_FEATURE_TABLES) { /* nothing was asked of one that can tell none */
		not_fetched += symbols.unasked;
		waiting = tables->waiting;
	}
	log_debug(
		"names of the guest's programs: %llu images asked for, %llu named, %llu without names",
		(unsigned long long)tables->asked, (unsigned long long)symbols.names.added,
		without);
	if (dropped)
		log_warning(
			"the names of %llu of the guest's programs were dropped: they have more than "
			"%llu MiB (--agent-memory)",
			dropped, (unsigned long long)agent->options->agent_memory >> 20);
	if (not_fetched)
		log_warning("the names of %s%llu of the guest's programs could not be fetched",
			    symbols.more ? "at least " : "", not_fetched);
	if (waiting)
		log_info("the guest ended before it had told the names of %llu of its programs",
			 waiting);
}

static void tell(const struct run_agent *agent, const struct agent_statistics *statistics)
{
	if (!statistics->sessions) {
		tell_silence(agent);
		return;
	}
	agent_way_warn(statistics);
	tell_omissions(statistics);
	agent_clock_warn(statistics);
	agent_kernel_warn(statistics);
	log_debug(
		"guest agent: version %u, features %#x, %llu sessions, %llu records; its clock is known to %llu ns%s",
		statistics->version, statistics->features, (unsigned long long)statistics->sessions,
		(unsigned long long)statistics->records,
		(unsigned long long)statistics->clock_error,
		statistics->tsc_used ? " by the TSC" : "");
}

void run_agent_stop(struct run_agent *agent)
{
	struct agent_statistics statistics;

	if (!agent->agent)
		return;
	agent_end(agent->agent, &statistics);
	tell(agent, &statistics);
}

void run_agent_destroy(struct run_agent *agent)
{
	if (!agent)
		return;
	tell_symbols(agent);
	agent_stop(agent->agent, NULL);
	if (agent->machine_end >= 0)
		close(agent->machine_end);
	if (agent->our_end >= 0)
		close(agent->our_end);
	ring_destroy(agent->ring);
	agent_names_destroy(agent->symbols);
	free(agent->archive);
	free(agent->command_line);
	free(agent);
}
