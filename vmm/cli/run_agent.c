/* SPDX-License-Identifier: Apache-2.0 */
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

#define RING_SIZE (4ul << 20)

struct run_agent {
	int machine_end, our_end; /* of a socketpair; -1 once given away */
	uint8_t *archive;         /* prepended to the initrd; NULL */
	size_t archive_size;
	char *command_line;
};

static int prepare(struct run_agent *agent, const struct run_options *options)
{
	int fds[2];

	if (options->agent == RUN_AGENT_INITRD) {
		agent->archive = agent_initrd_archive(&agent->archive_size);
		agent->command_line = agent_initrd_command_line(options->boot.append);
		if (!agent->archive || !agent->command_line)
			return error_set(-ENOMEM, "no memory for the guest agent");
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds))
		return error_set(-errno, "cannot create the guest agent's socket: %s",
				 strerror(errno));
	agent->machine_end = fds[0];
	agent->our_end = fds[1];
	return 0;
}

int run_agent_create(struct run_agent **result, const struct run_options *options)
{
	struct run_agent *agent = calloc(1, sizeof(*agent));
	int error;

	if (!agent)
		return error_set(-ENOMEM, "no memory for the guest agent");
	agent->machine_end = agent->our_end = -1;
	error = prepare(agent, options);
	if (error)
		run_agent_destroy(agent);
	else
		*result = agent;
	return error;
}

void run_agent_attach(struct run_agent *agent, struct machine_options *machine)
{
	machine->agent_fd = agent->machine_end;
	if (!agent->archive)
		return;
	machine->boot.initrd_front = span_of(agent->archive, agent->archive_size);
	machine->boot.append = agent->command_line;
}

struct session_agent_options run_agent_connect(struct run_agent *agent, const struct vm *vm)
{
	struct session_agent_options options = { .fd = agent->our_end, .ring_size = RING_SIZE };

	/* The machine has its own copy. Closing ours lets the socket end with the guest. */
	close(agent->machine_end);
	agent->machine_end = agent->our_end = -1;
	options.tsc_known = !vm_tsc_offset(vm, &options.tsc_offset);
	if (!options.tsc_known)
		log_debug("the guest's clock is known by messages only: %s", error_message());
	return options;
}

void run_agent_report(const struct run_options *options, const struct agent_statistics *statistics)
{
	if (statistics->sessions)
		agent_report(statistics);
	else if (options->agent == RUN_AGENT_INITRD)
		log_warning(
			"the guest agent did not answer: did the guest load virtio_console, and does its "
			"initrd have an init?");
	else
		log_warning(
			"no guest agent answered: is kvmscope-agent installed in the guest, and running?");
}

void run_agent_destroy(struct run_agent *agent)
{
	if (!agent)
		return;
	if (agent->machine_end >= 0)
		close(agent->machine_end);
	if (agent->our_end >= 0)
		close(agent->our_end);
	free(agent->archive);
	free(agent->command_line);
	free(agent);
}
