/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/record/collector_kernel.h"

static int write_record(void *context, const struct sideband *record)
{
	return perf_data_writer_sideband(context, record);
}

static int write_comm(void *context, uint64_t time, const struct perf_data_task *task,
		      const char *comm)
{
	return perf_data_writer_comm(context, time, (int32_t)task->pid, (int32_t)task->tid, comm);
}

static int write_cgroup(void *context, uint64_t time, uint64_t id, const char *path)
{
	return perf_data_writer_cgroup(context, time, id, path);
}

struct collector_output_options collector_output_options(const struct collector_kernel *kernel)
{
	return (struct collector_output_options){
		.account = kernel->options->account,
		.images = &kernel->boot.images,
		.page_tables = collector_kernel_is_program(kernel),
		.sources = kernel->options->sideband_ring_count > 0,
		.mapped = kernel->options->mapped,
		.context = kernel->options->context,
	};
}

int collector_output_open(struct collector_output *output, const struct perf_data_options *file,
			  const struct collector_output_options *options)
{
	static const struct collector_output_options none;
	int error;

	options = options ? options : &none;
	*output = (struct collector_output){ 0 };
	error = perf_data_writer_open(&output->writer, file);
	if (error)
		return error;
	output->state = file_state_new(&(struct file_state_options){
		.account = options->account,
		.images = options->images,
		.page_tables = options->page_tables,
		.sources = options->sources,
		.unknown_pid = (uint32_t)perf_data_writer_unknown_pid(output->writer),
		.record = write_record,
		.comm = write_comm,
		.cgroup = write_cgroup,
		.mapped = options->mapped,
		.context = output->writer,
		.mapped_context = options->context,
	});
	if (output->state)
		return 0;
	collector_output_close(output);
	return error_set(-ENOMEM, "no memory for the state of the recording");
}

void collector_output_losses(const struct collector_output *output, struct losses *losses)
{
	if (output->state)
		losses->counts[LOSS_CR3_UNKNOWN] += file_state_unnamed_roots(output->state);
}

/* Without an image, and without the user part of its call chain. */
static int write_late(struct collector_output *output, const struct sample *sample,
		      const struct perf_data_task *task, uint64_t cgroup)
{
	struct sample *copy = malloc(sample_length(sample));
	size_t end = sample_hit_offset(sample), size = sample_deferred_offset(sample) - end;
	int error;

	if (!copy)
		return error_set(-ENOMEM, "no memory for a sample");
	memcpy(copy, sample, sample_length(sample));
	copy->user_depth = copy->mappings = copy->deferred = 0;
	copy->flags |= SAMPLE_USER_TRUNCATED | (sample->cpl ? SAMPLE_UNCERTAIN : 0);
	memcpy(sample_write_hit(copy), (const char *)sample + end, size);
	error = perf_data_writer_sample_of(output->writer, copy, task, cgroup);
	free(copy);
	return error;
}

int collector_output_sample(struct collector_output *output,
			    const struct attributed_sample *attributed,
			    const struct guest_kernel *kernel, struct jit_code *jit)
{
	const struct sample *sample = attributed->sample;
	const struct file_state_guest guest = { kernel ? kernel->cgroups : NULL, jit };
	struct file_state_entry entry = { .task = perf_data_writer_task(output->writer, sample) };
	int error = file_state_sample(output->state, attributed, &guest, &entry);

	if (error)
		return error;
	return entry.late ? write_late(output, sample, &entry.task, entry.cgroup)
			  : perf_data_writer_sample_of(output->writer, sample, &entry.task,
						       entry.cgroup);
}

int collector_output_counts(struct collector_output *output,
			    const struct collector_options *options, uint64_t time)
{
	size_t watches = options->count ? perf_data_watches_count(options->output.watches) : 0;
	struct perf_data_count count;
	int error = 0;

	for (unsigned int watch = 0; watch < watches; watch++)
		for (unsigned int vcpu = 0; vcpu < options->output.vcpus && !error; vcpu++)
			if (options->count(options->context, watch, vcpu, &count))
				error = perf_data_writer_count(output->writer, time, vcpu,
							       (uint16_t)(watch + 1), &count);
	return error;
}

int collector_output_close(struct collector_output *output)
{
	int error = perf_data_writer_close(output->writer);

	file_state_free(output->state);
	*output = (struct collector_output){ 0 };
	return error;
}

const struct sample *collector_sample(const struct ring_record *record, size_t vcpus,
				      size_t watches)
{
	const struct sample *sample = (const void *)record->payload;
	size_t size = record->size - sizeof(*record);

	if (record->type != RECORD_SAMPLE || size < sizeof(*sample) || sample->vcpu >= vcpus ||
	    sample->event > watches ||
	    sample->kernel_depth + sample->user_depth > SAMPLE_CALLCHAIN_MAX ||
	    sample->mappings > SAMPLE_MAPPINGS_MAX ||
	    sample_host_depth(sample) > SAMPLE_HOST_CHAIN_MAX || size < sample_length(sample))
		return NULL;
	return sample;
}

const struct sample_event *collector_event(const struct ring_record *record, size_t vcpus,
					   size_t watches)
{
	const struct sample_event *event = (const void *)record->payload;

	if (record->type != RECORD_EVENT || record->size - sizeof(*record) < sizeof(*event) ||
	    event->vcpu >= vcpus || !event->event || event->event > watches)
		return NULL;
	return event;
}

const struct sample_guest_breakpoint_lost *collector_guest_lost(const struct ring_record *record,
								size_t vcpus)
{
	const struct sample_guest_breakpoint_lost *lost = (const void *)record->payload;

	if (record->type != RECORD_GUEST_BREAKPOINT_LOST ||
	    record->size - sizeof(*record) < sizeof(*lost) || lost->vcpu >= vcpus)
		return NULL;
	return lost;
}
