/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/attach_source.h"

#include <unistd.h>

#include "vmm/attach/agent_channel.h"
#include "vmm/session/host_cpu.h"
#include "vmm/session/recorded_times.h"

#define AGENT_RING_SIZE (2ul << 20)

static struct ring *const *rings(void *context, size_t *count)
{
	return attach_rings(context, count);
}

static const struct guest_view *view(void *context)
{
	return attach_view(context);
}

static void describe(void *context, struct perf_data_options *output)
{
	const struct vmm_process *process = attach_process(context);
	size_t rings;

	attach_rings(context, &rings);
	output->cycles = attach_event(context) == ATTACH_CYCLES;
	output->host_samples = true;
	output->frequency = attach_frequency(context);
	output->callchains = attach_backend(context)->has_callchains;
	output->vcpus = (unsigned int)rings;
	output->cpus = (unsigned int)process->vcpu_count;
	output->vmm_pid = process->pid;
	if (process->monitored)
		return; /* it may be emulated */
	output->cpu_description = host_cpu_description();
	output->cpuid = host_cpu_id();
}

static int start(void *context)
{
	return attach_start(context);
}

static bool awaits_kernel(void *context)
{
	return attach_awaits_kernel(context) && !vmm_process_ended(attach_process(context));
}

static int end_fd(void *context)
{
	return attach_end_fd(context);
}

static int stop(void *context)
{
	attach_stop(context);
	return attach_error(context);
}

static bool registers(void *context, struct guest_registers *found)
{
	return attach_registers(context, found);
}

static void publish(void *context, const struct guest_kernel *kernel)
{
	attach_set_kernel(context, kernel);
}

static void settle(void *context)
{
	attach_wait_for_users(context);
}

static void lost(void *context)
{
	attach_drop_kernel(context);
}

static void times(void *context, struct perf_data_times *recorded)
{
	struct vcpu_times_rows rows;

	if (!attach_times(context, &rows))
		recorded_times(recorded, &rows, VCPU_TIMES_OF_PROC);
	vcpu_times_free(&rows);
}

struct session_source attach_source(struct attach *attach)
{
	static const struct session_source_ops ops = {
		.rings = rings,
		.view = view,
		.describe = describe,
		.start = start,
		.awaits_kernel = awaits_kernel,
		.end_fd = end_fd,
		.stop = stop,
		.registers = registers,
		.publish = publish,
		.settle = settle,
		.lost = lost,
		.times = times,
	};

	return (struct session_source){ &ops, attach, ATTACH_SOURCE_DELAY };
}

bool attach_source_agent(const struct attach *attach, const char *socket,
			 struct session_agent_options *options)
{
	*options = (struct session_agent_options){
		.fd = -1,
		.process = attach_process(attach),
		.path = socket,
		.ring_size = AGENT_RING_SIZE,
		.scans_page_tables = true,
	};
	return socket || agent_channel_exists(options->process);
}

int attach_source_parser(const struct attach *attach, const char *kernel,
			 struct image_parser **parser)
{
	struct image_parser_user user = { geteuid(), getegid() };

	vmm_process_user(attach_process(attach), &user.uid, &user.gid);
	return image_parser_start(parser, &user, kernel);
}
