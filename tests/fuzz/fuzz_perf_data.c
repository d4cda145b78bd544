/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a perf.data file. The reader reads, rejects or skips any bytes, and trusts none. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/perf_data/perf_data_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everything that the reader passes on must be readable to its end. */
static uint64_t sum;

static int sum_sample(void *context, const struct perf_data_sample *sample)
{
	sum += sample->ip + sample->event + sample->vcpu + sample->values.after;
	for (size_t i = 0; i < sample->callchain_size; i++)
		sum += sample->callchain[i];
	return 0;
}

static void sum_text(const char *text)
{
	for (; *text; text++)
		sum += (uint8_t)*text;
}

static void sum_bytes(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sum += bytes[i];
}

static int sum_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	sum_text(mapping->name);
	sum_bytes(mapping->build_id, mapping->build_id_size);
	return 0;
}

static int sum_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	sum_text(comm);
	return 0;
}

static int sum_build_id(void *context, const struct perf_data_build_id *build_id)
{
	sum_text(build_id->name);
	sum_bytes(build_id->build_id, build_id->build_id_size);
	return 0;
}

static int sum_lost(void *context, uint64_t count)
{
	sum += count;
	return 0;
}

static void sum_events(const struct perf_data_reader *reader)
{
	const struct perf_data_event *event;
	struct perf_data_count count;

	for (size_t i = 0; (event = perf_data_reader_event(reader, i)); i++) {
		sum_text(event->name ? event->name : "");
		if (perf_data_reader_count(reader, i, -1, &count))
			sum += count.running;
	}
}

static void read_twice(const char *path)
{
	struct perf_data_events events = {
		.sample = sum_sample,
		.mapping = sum_mapping,
		.comm = sum_comm,
		.build_id = sum_build_id,
		.lost = sum_lost,
	};
	struct perf_data_reader *reader;
	const struct perf_data_summary *summary;

	if (perf_data_reader_open(&reader, path))
		return;
	perf_data_reader_run(reader, &events);
	perf_data_reader_run(reader, &events);
	summary = perf_data_reader_summary(reader);
	sum_events(reader);
	sum_text(summary->event_name);
	sum_text(summary->hostname);
	sum_text(summary->command_line);
	perf_data_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC);
	char path[32];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_twice(path);
	close(fd);
	return 0;
}
