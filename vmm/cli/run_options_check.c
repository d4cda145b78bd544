/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_options_check.h"

#include <string.h>

#include "shared/error.h"
#include "shared/ring.h"
#include "vmm/cli/run_flight.h"

/* With the frequency and the number of vCPUs, wherever they stand in the command line. */
static void check_flight(const struct argp_state *state, struct run_options *options)
{
	if (!options->flight) {
		if (options->flight_after)
			argp_error(state, "--after is for the flight recorder: give --flight, too");
		if (options->triggers.line_count || trigger_options_have_limits(&options->triggers))
			argp_error(state,
				   "--trigger is for the flight recorder: give --flight, too");
		return;
	}
	if (!options->profile || options->ring_size_given)
		argp_error(state, "--flight does not go with --no-profile, nor with --ring-size");
	if (!strcmp(options->output, "-"))
		argp_error(state,
			   "--flight writes files, as many as there are triggers: -o - is none");
	if (run_flight_ring_size(options, &options->ring_size))
		argp_error(state, "%s", error_message());
}

void run_options_check(const struct argp_state *state, struct run_options *options)
{
	if (!options->boot.kernel)
		argp_error(state, "--kernel FILE is missing: what shall be booted?");
	if (options->agent && options->agent_socket)
		argp_error(state, "--agent and --agent-socket both want the port; give one");
	if (options->agent == RUN_AGENT_INITRD && !options->boot.initrd)
		argp_error(
			state,
			"--agent needs --initrd to bring the agent into the guest; --agent=guest if it is there");
	if (options->agent && !options->profile)
		argp_error(state, "--agent is for a profile; it has no use with --no-profile");
	if (options->ring_size < RING_SIZE_MIN || options->ring_size > RING_SIZE_MAX ||
	    options->ring_size & (options->ring_size - 1))
		argp_error(state, "--ring-size: it must be a power of two from 64K to 1G");
	if (!!options->name + !!options->control_path + !options->control > 1)
		argp_error(state,
			   "--name, --control and --no-control: one of them says where to listen");
	if (options->sampler == RUN_SAMPLER_BPF && options->wall_clock)
		argp_error(
			state,
			"--sampler bpf has --clock cpu only: a halted vCPU takes no interrupts of ours");
	check_flight(state, options);
	if (options->watch_count && !options->profile)
		argp_error(state, "--watch records hits in the profile: leave --no-profile out");
	for (size_t i = 0; i < options->watch_count; i++)
		if (options->watches[i].vcpu >= (int)options->cpus)
			argp_error(state, "--watch @%d: vCPUs are numbered from 0 to %u",
				   options->watches[i].vcpu, options->cpus - 1);
}
