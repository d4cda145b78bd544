// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/error.h"

int collector_output_open(struct collector_output *output, const struct perf_data_options *options)
{
	int error;

	*output = (struct collector_output){ .vmm_pid = options->vmm_pid };
	output->named = calloc(options->vcpus, sizeof(output->named[0]));
	if (!output->named)
		return error_set(-ENOMEM, "no memory for a recording of %u vCPUs", options->vcpus);
	error = perf_data_writer_open(&output->writer, options);
	if (error) {
		free(output->named);
		output->named = NULL;
	}
	return error;
}

/* perf groups by the name of the thread that ran the vCPU. */
static int name_thread(struct collector_output *output, const struct sample *sample)
{
	char name[32];

	if (output->named[sample->vcpu] == sample->host_tid)
		return 0;
	output->named[sample->vcpu] = sample->host_tid;
	snprintf(name, sizeof(name), "vcpu %u", sample->vcpu);
	return perf_data_writer_comm(output->writer, 0, output->vmm_pid, (int32_t)sample->host_tid, name);
}

int collector_output_sample(struct collector_output *output, const struct sample *sample)
{
	int error = name_thread(output, sample);

	return error ? error : perf_data_writer_sample(output->writer, sample);
}

int collector_output_lost(struct collector_output *output, uint64_t time, uint32_t vcpu, uint64_t count)
{
	return perf_data_writer_lost(output->writer, time, vcpu, count);
}

int collector_output_close(struct collector_output *output)
{
	int error = perf_data_writer_close(output->writer);

	free(output->named);
	*output = (struct collector_output){ 0 };
	return error;
}

const struct sample *collector_sample(const struct ring_record *record, size_t vcpus)
{
	const struct sample *sample = (const void *)record->payload;
	size_t size = record->size - sizeof(*record);

	if (record->type != RECORD_SAMPLE || size < sizeof(*sample) || sample->vcpu >= vcpus ||
	    size < sample_size((size_t)sample->kernel_depth + sample->user_depth))
		return NULL;
	return sample;
}
