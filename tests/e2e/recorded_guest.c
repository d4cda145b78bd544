/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/recorded_guest.h"

#include <stdio.h>
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

/* Some of the samples belong to events of time outside of the guest. */
static void leave_guest(struct sample *sample, unsigned int number)
{
	const char *reason = number % 3 ? "exit npf" : "exit io";

	sample->event = number % 10 == 3 ? 1 : number % 10 == 4 ? 2 : 0;
	if (!sample->event)
		return;
	sample->flags |= SAMPLE_OUTSIDE;
	snprintf(sample_write_outside(sample)->reason, sizeof(struct sample_outside), "%s",
		 sample->event == 1 ? reason : "off-cpu halted");
}

/* OUTSIDE: NULL or the events of time outside of the guest. */
static void write_recording(const char *path, const struct fake_guest *guest, const char *comm,
			    enum perspective perspective, struct perf_data_watches *outside)
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
		.watches = outside,
	};
	struct sample *sample = malloc(SAMPLE_LENGTH_MAX);
	struct perf_data_writer *writer;

	recording_rewind();
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	recording_map_guest(writer, guest, false);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID, comm), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, FIRST_TID + 1, "vcpu 1"), 0);
	for (unsigned int i = 0; i < RECORDED_SAMPLES; i++) {
		make_sample(sample, i);
		if (outside)
			leave_guest(sample, i);
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
	write_recording(named->path, &named->guest, comm, perspective, NULL);
}

void recorded_guest_begin_outside(struct named_guest *named)
{
	struct perf_data_watches events = { 0 };

	perf_data_watches_add(&events,
			      &(struct perf_data_watch){ .outside = true, .name = "kvm:exit" });
	perf_data_watches_add(&events,
			      &(struct perf_data_watch){ .outside = true, .name = "kvm:off-cpu" });
	named_guest_begin(named, 0x17, 0);
	named_guest_cache(named, false);
	write_recording(named->path, &named->guest, "vcpu 0", PERSPECTIVE_GUEST, &events);
}

void recorded_guest_export(const struct named_guest *named, const char *file, const char *options)
{
	int status;

	free(command_output(&status, "build/kvmscope export -i %s -o %s/%s %s 2>&1", named->path,
			    named->home, file, options));
	CHECK_EQUAL(status, 0);
}
