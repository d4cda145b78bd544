// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector_output.h"

#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "vmm/profile/collector.h"

int collector_output_open(struct collector_output *output, const struct perf_data_options *options)
{
	int error;

	*output = (struct collector_output){ .names = task_names_new() };
	if (!output->names)
		return error_set(-ENOMEM, "no memory for the names of the guest's tasks");
	error = perf_data_writer_open(&output->writer, options);
	if (error) {
		task_names_free(output->names);
		output->names = NULL;
	}
	return error;
}

/* The idle tasks are one to perf, which calls it so; the guest calls each "swapper/" and the number of its
 * CPU. */
static void describe_task(const struct sample *sample, const struct perf_data_task *task, char *name)
{
	if (!task->of_guest)
		snprintf(name, SAMPLE_COMM_SIZE, "vcpu %u", sample->vcpu);
	else if (!task->pid)
		snprintf(name, SAMPLE_COMM_SIZE, "swapper");
	else
		snprintf(name, SAMPLE_COMM_SIZE, "%.*s", SAMPLE_COMM_SIZE - 1, sample->comm);
}

static int name_task(struct collector_output *output, const struct sample *sample)
{
	struct perf_data_task task = perf_data_writer_task(output->writer, sample);
	char name[SAMPLE_COMM_SIZE];

	describe_task(sample, &task, name);
	if (!task_names_due(output->names, task.pid, task.tid, sample->time, name))
		return 0;
	return perf_data_writer_comm(output->writer, sample->time, (int32_t)task.pid, (int32_t)task.tid,
				     name);
}

int collector_output_sample(struct collector_output *output, const struct sample *sample)
{
	int error = name_task(output, sample);

	return error ? error : perf_data_writer_sample(output->writer, sample);
}

int collector_output_sideband(struct collector_output *output, const struct sideband *record)
{
	const struct sideband_comm *comm = (const void *)record;

	/* Readers give a new thread its parent's name: whatever it is called, it is to be said again. */
	if (record->type == SIDEBAND_FORK)
		task_names_due(output->names, record->pid, record->tid, record->time, "");
	if (record->type == SIDEBAND_COMM &&
	    !task_names_due(output->names, record->pid, record->tid, record->time, comm->comm) &&
	    !(record->flags & SIDEBAND_COMM_EXEC))
		return 0;
	return perf_data_writer_sideband(output->writer, record);
}

int collector_output_event(struct collector_output *output, const struct sample_event *event)
{
	return perf_data_writer_event(output->writer, event);
}

int collector_output_counts(struct collector_output *output, const struct collector_options *options,
			    uint64_t time)
{
	size_t watches = options->count ? perf_data_watches_count(options->output.watches) : 0;
	struct perf_data_count count;
	int error = 0;

	for (unsigned int watch = 0; watch < watches; watch++)
		for (unsigned int vcpu = 0; vcpu < options->ring_count && !error; vcpu++)
			if (options->count(options->context, watch, vcpu, &count))
				error = perf_data_writer_count(output->writer, time, vcpu,
							       (uint16_t)(watch + 1), &count);
	return error;
}

int collector_output_lost(struct collector_output *output, uint64_t time, uint32_t vcpu, uint64_t count)
{
	return perf_data_writer_lost(output->writer, time, vcpu, count);
}

int collector_output_close(struct collector_output *output)
{
	int error = perf_data_writer_close(output->writer);

	task_names_free(output->names);
	*output = (struct collector_output){ 0 };
	return error;
}

const struct sample *collector_sample(const struct ring_record *record, size_t vcpus, size_t watches)
{
	const struct sample *sample = (const void *)record->payload;
	size_t size = record->size - sizeof(*record);

	if (record->type != RECORD_SAMPLE || size < sizeof(*sample) || sample->vcpu >= vcpus ||
	    sample->event > watches || sample->kernel_depth + sample->user_depth > SAMPLE_CALLCHAIN_MAX ||
	    size < sample_length(sample))
		return NULL;
	return sample;
}

const struct sample_event *collector_event(const struct ring_record *record, size_t vcpus, size_t watches)
{
	const struct sample_event *event = (const void *)record->payload;

	if (record->type != RECORD_EVENT || record->size - sizeof(*record) < sizeof(*event) ||
	    event->vcpu >= vcpus || !event->event || event->event > watches)
		return NULL;
	return event;
}
