/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/recorded_guest.h"

#include <stdlib.h>

#include "tests/e2e/perf_recording.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* An address in one of the functions; functions with low numbers are hotter. */
static uint64_t next_address(uint64_t start)
{
	return start + recording_random(1 + recording_random(FAKE_FUNCTIONS)) * FAKE_FUNCTION_SIZE +
	       recording_random(FAKE_FUNCTION_SIZE);
}

static void make_sample(struct sample *sample, unsigned int number)
{
	uint64_t *chain = sample->callchain;

	recording_sample_begin(sample, number, 2);
	sample->cpl = number % 5 ? 0 : 3;
	if (!sample->cpl) {
		sample->kernel_depth = (uint16_t)(1 + recording_random(6));
		for (unsigned int i = 0; i < sample->kernel_depth; i++)
			*chain++ = next_address(number % 7 || i ? FAKE_TEXT : FAKE_MODULE);
	}
	if (sample->cpl || recording_random(2)) {
		sample->user_depth = (uint16_t)(1 + recording_random(3));
		for (unsigned int i = 0; i < sample->user_depth; i++)
			*chain++ = 0x400000 + recording_random(8);
	}
	sample->rip = sample->callchain[0];
}

static void write_recording(const char *path, const struct fake_guest *guest, const char *comm,
			    enum perspective perspective)
{
	struct perf_data_options options = {
		.path = path,
		.perspective = perspective,
		.frequency = 1000,
		.callchains = true,
		.vcpus = 2,
		.vmm_pid = VMM_PID,
		.command_line = "kvmscope run --cpus 2",
		.hostname = "guest",
		.release = "6.1.0-test",
	};
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	struct perf_data_writer *writer;

	recording_rewind();
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	recording_map_guest(writer, guest, false);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID, comm), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID + 1, "vcpu 1"), 0);
	for (unsigned int i = 0; i < RECORDED_SAMPLES; i++) {
		make_sample(sample, i);
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == RECORDED_SAMPLES / 2)
			CHECK_EQUAL(perf_data_writer_lost(writer, sample->time, sample->vcpu, 17),
				    0);
		if (i % 500 == 499)
			CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

void recorded_guest_begin(struct named_guest *named, const char *comm, enum perspective perspective)
{
	named_guest_begin(named, 0x17, 0);
	named_guest_cache(named, false);
	write_recording(named->path, &named->guest, comm, perspective);
}

void recorded_guest_export(const struct named_guest *named, const char *file, const char *options)
{
	int status;

	free(command_output(&status, "build/kvmscope export -i %s -o %s/%s %s 2>&1", named->path,
			    named->home, file, options));
	CHECK_EQUAL(status, 0);
}
