/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_bpf.h"

#include <errno.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/bpf_skeletons.h"

/* Why kicks give a better profile, even where BPF works; NULL: they do not. */
static const char *why_kicks(const struct run_options *options)
{
	if (options->clock == RUN_CLOCK_WALL)
		return "a halted vCPU gets no interrupts of the clock";
	if (options->record.callchains)
		return "kicks unwind the whole stack, and look up mappings, while the vCPU is stopped";
	if (!options->agent)
		return "it looks up control groups after the sample, unless --agent reports them";
	return NULL;
}

static int start(struct attach **result, const struct run_options *options)
{
	const struct attach_options own = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.frequency = options->record.frequency,
		.callchains = options->record.callchains,
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

static int start_if_as_good(struct attach **attach, const struct run_options *options)
{
	int error = start(attach, options);

	if (error || !bpf_programs_are_intel())
		return error;
	attach_close(*attach);
	*attach = NULL;
	return error_set(
		-ENOTSUP,
		"on kvm_intel it has no kernel call chains, and no tasks of a guest that is not Linux");
}

bool run_bpf_is_tried(const struct run_options *options)
{
	return options->profile && (options->sampler == RUN_SAMPLER_BPF ||
				    (options->sampler == RUN_SAMPLER_AUTO && !why_kicks(options)));
}

int run_bpf_start(struct attach **attach, const struct run_options *options)
{
	bool automatic = options->sampler == RUN_SAMPLER_AUTO;
	const char *why = automatic ? why_kicks(options) : NULL;
	int error = 0;

	*attach = NULL;
	if (options->sampler != RUN_SAMPLER_KICK && !why)
		error = automatic ? start_if_as_good(attach, options) : start(attach, options);
	if (error && !automatic)
		return error;
	if (*attach)
		log_info("sampled by bpf: the guest does not exit for samples");
	else if (error)
		log_info("sampled by kicks, not by bpf: %s; see --sampler", error_message());
	else if (automatic)
		log_debug("sampled by kicks, not by bpf: %s", why);
	return 0;
}
