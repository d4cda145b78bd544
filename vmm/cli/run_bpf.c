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
	switch (bpf_kvm()) {
	case BPF_KVM_AMD:
		return NULL;
	case BPF_KVM_INTEL:
		return "on kvm_intel it has no kernel call chains";
	default:
		return "this KVM may interpret the guest's kernel, whose samples it would miss";
	}
}

/* The same, of the loaded kernel. */
static const char *why_kicks_for(const struct boot_start *kernel)
{
	bool is_linux = kernel->protocol != BOOT_MULTIBOOT;

	/* A PVH kernel starts in 32-bit mode. */
	if (is_linux && (kernel->long_mode || kernel->protocol == BOOT_PVH))
		return NULL;
	return "it has kernel call chains of 64-bit Linux only";
}

static int start(struct attach **result, const struct run_options *options)
{
	const struct attach_options own = {
		.pid = getpid(),
		.own = true,
		.backend = "bpf",
		.outside = options->outside,
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

bool run_bpf_is_tried(const struct run_options *options)
{
	return options->profile && (options->sampler == RUN_SAMPLER_BPF ||
				    (options->sampler == RUN_SAMPLER_AUTO && !why_kicks(options)));
}

static void start_automatically(struct attach **attach, const struct run_options *options,
				const struct machine *machine)
{
	const char *why = why_kicks(options);

	if (!why)
		why = why_kicks_for(machine_boot_start(machine));
	if (!why && start(attach, options))
		why = error_message();
	if (why)
		log_debug("sampled by kicks, not by bpf: %s", why);
	else
		log_debug("sampled by bpf: the guest does not exit for samples");
}

int run_bpf_start(struct attach **attach, const struct run_options *options,
		  const struct machine *machine)
{
	int error = 0;

	*attach = NULL;
	if (options->sampler == RUN_SAMPLER_AUTO)
		start_automatically(attach, options, machine);
	else if (options->sampler == RUN_SAMPLER_BPF)
		error = start(attach, options);
	if (options->sampler == RUN_SAMPLER_BPF && !error)
		log_info("sampled by bpf: the guest does not exit for samples");
	return error;
}
