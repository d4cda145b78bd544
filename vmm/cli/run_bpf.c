/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_bpf.h"

#include <errno.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/bpf_skeletons.h"

/* What it would be worse in, though it may work. NULL: in nothing. */
static const char *why_kicks(const struct run_options *options)
{
	if (options->wall_clock)
		return "a vCPU that is halted takes no interrupt of the clock";
	if (options->callchains)
		return "that has callers in programs by frame pointers only";
	if (!options->agent)
		return "that does not see control groups, which only --agent would tell then";
	return NULL;
}

static int start(struct attach **result, const struct run_options *options)
{
	const struct attach_options own = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.frequency = options->frequency,
		.callchains = options->callchains,
		.overwrite = options->flight,
		.ring_size = options->ring_size,
	};
	struct attach *attach;
	int error = attach_open(&attach, &own);

	if (error)
		return error;
	error = attach_start(attach);
	if (!error && options->from_line)
		error = attach_set_frequency(attach, 0);
	if (error)
		attach_close(attach);
	else
		*result = attach;
	return error;
}

static int start_where_it_is_as_good(struct attach **attach, const struct run_options *options)
{
	int error = start(attach, options);

	if (error || !bpf_programs_are_intel())
		return error;
	attach_close(*attach);
	*attach = NULL;
	return error_set(
		-ENOTSUP,
		"on kvm_intel that has no callers in a guest's kernel, and no task of a guest that is no Linux");
}

int run_bpf_start(struct attach **attach, const struct run_options *options)
{
	bool automatic = options->sampler == RUN_SAMPLER_AUTO;
	const char *why = automatic ? why_kicks(options) : NULL;
	int error = 0;

	*attach = NULL;
	if (options->sampler != RUN_SAMPLER_KICK && !why)
		error = automatic ? start_where_it_is_as_good(attach, options)
				  : start(attach, options);
	if (error && !automatic)
		return error;
	if (error)
		why = error_message();
	if (*attach)
		log_info("sampled by bpf: the guest is not left for a sample");
	else if (error)
		log_info("sampled by kicks, not by bpf: %s; see --sampler", why);
	else if (automatic)
		log_debug("sampled by kicks, not by bpf: %s", why);
	return 0;
}

int run_bpf_enter(struct attach *attach, struct vcpu *vcpu)
{
	vcpu_bind_thread(vcpu);
	return attach_rescan(attach);
}
