/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/perf_recording.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

static uint32_t random_state = 1;

void recording_rewind(void)
{
	random_state = 1;
}

uint32_t recording_random(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

void recording_sample_begin(struct sample *sample, unsigned int number, unsigned int vcpus)
{
	memset(sample, 0, sizeof(*sample));
	sample->time = 1000000000ull + number * 250000ull;
	sample->period = 1000000 + recording_random(1000);
	sample->vcpu = number % vcpus;
	sample->host_tid = FIRST_TID + sample->vcpu;
	sample->pid = VMM_PID;
	sample->tid = sample->host_tid;
}

/*
 * Sample NUMBER of a realistic recording: two of four samples have kernel frames in their chains.
 */
void recording_sample(struct sample *sample, unsigned int number, uint64_t text)
{
	uint64_t *chain = sample->callchain;

	recording_sample_begin(sample, number, 4);
	sample->cpl = number % 3 ? 0 : 3;
	if (!sample->cpl) {
		sample->kernel_depth = (uint16_t)(1 + recording_random(5));
		for (unsigned int i = 0; i < sample->kernel_depth; i++)
			*chain++ = text + recording_random(FAKE_FUNCTIONS * FAKE_FUNCTION_SIZE);
	}
	if (sample->cpl || recording_random(2)) {
		sample->user_depth = (uint16_t)(1 + recording_random(4));
		for (unsigned int i = 0; i < sample->user_depth; i++)
			*chain++ = 0x400000 + recording_random(0x10000);
	}
	sample->rip = sample->callchain[0];
}

int recording_open(struct perf_data_writer **writer, const struct recording *recording)
{
	struct perf_data_options options = {
		.path = recording->path,
		.perspective = recording->perspective,
		.wall_clock = recording->wall_clock,
		.frequency = 1000,
		.callchains = true,
		.compression = recording->compression,
		.vcpus = 4,
		.vmm_pid = VMM_PID,
		.command_line = "kvmscope run -F 1000 --cpus 4",
		.hostname = "guest-host",
		.release = "6.1.0-test",
		.cpu_description = "A CPU of a guest",
		.cpuid = "GenuineIntel,6,85,7",
		.memory_kib = 131072,
	};

	return perf_data_writer_open(writer, &options);
}

void recording_map_guest(struct perf_data_writer *writer, const struct fake_guest *guest, bool host)
{
	struct perf_data_mapping mapping = {
		.pid = -1,
		.tid = -1,
		.start = guest->image.start,
		.size = guest->image.end - guest->image.start,
		.offset = guest->image.start,
		.name = host ? "[kernel.kallsyms]" BUILD_ID_CACHE_ANCHOR : "[kernel.kallsyms]_text",
		.build_id = guest->build_id,
		.build_id_size = sizeof(guest->build_id),
		.kernel = true,
	};

	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
	mapping = (struct perf_data_mapping){
		.pid = -1,
		.tid = -1,
		.start = guest->module.start,
		.size = guest->module.size,
		.name = "[fake_module]",
		.build_id = guest->module.build_id,
		.build_id_size = guest->module.build_id_size,
		.kernel = true,
	};
	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
}

void recording_name_vcpus(struct perf_data_writer *writer)
{
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "vcpu %d", i);
		CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID + i, name), 0);
	}
}

static void write_samples(const struct recording *recording, struct perf_data_writer *writer)
{
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));

	random_state = 1;
	for (unsigned int i = 0; i < recording->samples; i++) {
		recording_sample(sample, i, recording->text);
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == recording->samples / 3 && recording->guest)
			recording_map_guest(writer, recording->guest,
					    recording->perspective == PERSPECTIVE_HOST);
		if (i == recording->samples / 2)
			CHECK_EQUAL(perf_data_writer_lost(writer, sample->time, sample->vcpu, 17),
				    0);
		if (i % 100 == 99)
			CHECK_EQUAL(i < recording->samples / 3
					    ? perf_data_writer_write_out(writer)
					    : perf_data_writer_flush(writer, UINT64_MAX),
				    0);
	}
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	free(sample);
}

void recording_write(const struct recording *recording)
{
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(recording_open(&writer, recording), 0);
	recording_name_vcpus(writer);
	write_samples(recording, writer);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

/*
 * Like recording_write(), in a process that ends without closing. READY gets a byte when the file
 * exists.
 */
pid_t recording_in_child(const struct recording *recording, int ready)
{
	struct perf_data_writer *writer;
	pid_t child = fork();

	if (child)
		return child;
	if (recording_open(&writer, recording) || write(ready, "", 1) != 1)
		_exit(1);
	write_samples(recording, writer);
	_exit(0);
}

void recording_leave(const struct recording *recording)
{
	int pipe_ends[2], status = -1;

	REQUIRE_EQUAL(pipe(pipe_ends), 0);
	waitpid(recording_in_child(recording, pipe_ends[1]), &status, 0);
	CHECK_EQUAL(status, 0);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* Compares the samples that the reader returns with those that were written. */
struct comparison {
	const struct recording *recording;
	struct sample *expected;
	unsigned int samples, wrong;
	uint64_t lost;
};

static bool same_chain(const struct perf_data_sample *actual, const struct sample *expected)
{
	size_t depth = 0;

	for (size_t i = 0; i < actual->callchain_size; i++) {
		if (actual->callchain[i] >= (uint64_t)PERF_CONTEXT_MAX)
			continue;
		if (depth >= (size_t)expected->kernel_depth + expected->user_depth ||
		    actual->callchain[i] != expected->callchain[depth++])
			return false;
	}
	return depth == (size_t)expected->kernel_depth + expected->user_depth;
}

static int compare_sample(void *context, const struct perf_data_sample *actual)
{
	struct comparison *comparison = context;
	struct sample *expected = comparison->expected;

	recording_sample(expected, comparison->samples++, comparison->recording->text);
	comparison->wrong +=
		actual->time != expected->time || actual->ip != expected->rip ||
		actual->period != expected->period || actual->pid != VMM_PID ||
		actual->tid != expected->host_tid || actual->cpu != expected->vcpu ||
		actual->misc != (expected->cpl ? PERF_RECORD_MISC_USER : PERF_RECORD_MISC_KERNEL) ||
		!same_chain(actual, expected);
	return 0;
}

static int compare_lost(void *context, uint64_t count)
{
	((struct comparison *)context)->lost += count;
	return 0;
}

/* Reads the recording's file and compares its contents; returns the number of samples. */
unsigned int recording_read(const struct recording *recording, bool *cut_off)
{
	struct comparison comparison = { .recording = recording };
	struct perf_data_events events = { .sample = compare_sample,
					   .lost = compare_lost,
					   .context = &comparison };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, recording->path);

	if (error) {
		FAIL_TEST("cannot open it: %s", error_message());
		return 0;
	}
	comparison.expected = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	random_state = 1;
	if (perf_data_reader_run(reader, &events))
		FAIL_TEST("cannot read it: %s", error_message());
	CHECK_EQUAL(comparison.wrong, 0);
	CHECK_EQUAL(comparison.lost,
		    comparison.samples > recording->samples / 2 + 1 ? 17 : comparison.lost);
	CHECK_EQUAL(perf_data_reader_summary(reader)->skipped, 0);
	*cut_off = perf_data_reader_summary(reader)->cut_off;
	perf_data_reader_close(reader);
	free(comparison.expected);
	return comparison.samples;
}

bool recording_replay(const char *path, const struct perf_data_events *events)
{
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, path);

	if (!error) {
		error = perf_data_reader_run(reader, events);
		perf_data_reader_close(reader);
	}
	if (error)
		FAIL_TEST("cannot read %s: %s", path, error_message());
	return !error;
}
