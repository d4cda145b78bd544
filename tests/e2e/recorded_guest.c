// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/recorded_guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample.h"
#include "tests/e2e/command.h"
#include "tests/unit/shim/test.h"

#define VMM_PID 4242

static uint32_t random_state;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

/* An address in one of the functions; those of low numbers are hotter. */
static uint64_t next_address(uint64_t start)
{
	return start + next_random(1 + next_random(FAKE_FUNCTIONS)) * FAKE_FUNCTION_SIZE +
	       next_random(FAKE_FUNCTION_SIZE);
}

static void make_sample(struct sample *sample, unsigned int number)
{
	uint64_t *chain = sample->callchain;

	memset(sample, 0, sizeof(*sample));
	sample->time = 1000000000ull + number * 250000ull;
	sample->period = 1000000 + next_random(1000);
	sample->vcpu = number % 2;
	sample->host_tid = 5000 + sample->vcpu;
	sample->pid = VMM_PID;
	sample->tid = sample->host_tid;
	sample->cpl = number % 5 ? 0 : 3;
	if (!sample->cpl) {
		sample->kernel_depth = (uint16_t)(1 + next_random(6));
		for (unsigned int i = 0; i < sample->kernel_depth; i++)
			*chain++ = next_address(number % 7 || i ? FAKE_TEXT : FAKE_MODULE);
	}
	if (sample->cpl || next_random(2)) {
		sample->user_depth = (uint16_t)(1 + next_random(3));
		for (unsigned int i = 0; i < sample->user_depth; i++)
			*chain++ = 0x400000 + next_random(8);
	}
	sample->rip = sample->callchain[0];
}

static void map_guest(struct perf_data_writer *writer, const struct fake_guest *guest)
{
	struct perf_data_mapping mapping = {
		.pid = -1,
		.tid = -1,
		.start = guest->image.start,
		.size = guest->image.end - guest->image.start,
		.offset = guest->image.start,
		.name = "[kernel.kallsyms]_text",
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
		.kernel = true,
	};
	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
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
		.arch = "x86_64",
	};
	struct sample *sample = malloc(sample_size(SAMPLE_CALLCHAIN_MAX));
	struct perf_data_writer *writer;

	random_state = 1;
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	map_guest(writer, guest);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, 5000, comm), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, VMM_PID, 5001, "vcpu 1"), 0);
	for (unsigned int i = 0; i < RECORDED_SAMPLES; i++) {
		make_sample(sample, i);
		CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
		if (i == RECORDED_SAMPLES / 2)
			CHECK_EQUAL(perf_data_writer_lost(writer, sample->time, sample->vcpu, 17), 0);
		if (i % 500 == 499)
			CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

void recorded_guest_make(struct recorded_guest *recorded, const char *comm, enum perspective perspective)
{
	struct build_id_cache_boot boot = { 0 };
	char cache[128];

	snprintf(recorded->former_home, sizeof(recorded->former_home), "%s",
		 getenv("HOME") ? getenv("HOME") : "/");
	strcpy(recorded->home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(recorded->home))
		abort();
	setenv("HOME", recorded->home, 1);
	snprintf(recorded->path, sizeof(recorded->path), "%s/perf.data", recorded->home);
	snprintf(cache, sizeof(cache), "%s/.debug", recorded->home);
	fake_guest_make(&recorded->guest, 0x17, 0, FAKE_MODULE);
	CHECK_EQUAL(build_id_cache_add_kernel(cache, &recorded->guest.image), 0);
	CHECK_EQUAL(build_id_cache_add_boot(cache, &recorded->guest.image, &boot), 0);
	write_recording(recorded->path, &recorded->guest, comm, perspective);
}

void recorded_guest_free(struct recorded_guest *recorded)
{
	fake_guest_free(&recorded->guest);
	free(command_output(NULL, "rm -rf %s", recorded->home));
	setenv("HOME", recorded->former_home, 1);
}
