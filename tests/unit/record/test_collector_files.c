/* SPDX-License-Identifier: Apache-2.0 */
/* A recording in many files: each is whole, and each sample in one of them. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/collector.h"

#define WAIT_MS 20000
#define NEVER   (UINT64_MAX / 2)
#define TEXT    0xffffffff9c200000ull
#define PROGRAM "/usr/bin/program"

static const struct kernel_guest_location place = { TEXT, 0x200000, KERNEL_GUEST_BANNER };

struct keeper {
	char directory[64];
	struct flat_guest guest;
	struct ring *ring, *sideband; /* of samples; of the guest's sideband */
	struct collector *collector;
	struct collector_files files;
	struct perf_data_room room;
	atomic_uint begun, ended; /* files */
	atomic_uint kernels;      /* that were found */
	atomic_uint no_file;      /* number of times that begin() has none */
	atomic_bool full;         /* nothing more is to be written */
	atomic_uint failed;       /* files that were given back with -ENOSPC */
	uint64_t given;           /* samples that end() reported */
};

static int begin(void *context, char *path, size_t size)
{
	struct keeper *keeper = context;

	if (keeper->no_file) {
		keeper->no_file--;
		return -ENOSPC;
	}
	snprintf(path, size, "%s/%u", keeper->directory, keeper->begun++);
	return 0;
}

static void end(void *context, const struct collector_file *file)
{
	struct keeper *keeper = context;

	if (file->error) {
		CHECK_EQUAL(file->error, -ENOSPC);
		CHECK_STRING(error_message(), "the disk is full");
		unlink(file->path);
		keeper->failed++;
	} else {
		keeper->given += file->samples;
	}
	keeper->ended++;
}

static int make_room(void *context, uint64_t size, bool full)
{
	struct keeper *keeper = context;

	CHECK(!full);
	return keeper->full ? error_set(-ENOSPC, "the disk is full") : 0;
}

static bool get_registers(void *context, struct guest_registers *registers)
{
	const struct keeper *keeper = context;

	*registers = keeper->guest.registers;
	return true;
}

static void take_kernel(void *context, const struct guest_kernel *kernel)
{
	((struct keeper *)context)->kernels += !!kernel;
}

static int start(struct keeper *keeper, uint64_t interval)
{
	struct collector_options options;

	*keeper = (struct keeper){ .directory = "/tmp/kvmscope-files-XXXXXX" };
	if (!mkdtemp(keeper->directory))
		return -errno;
	flat_guest_create(&keeper->guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(&keeper->guest, KALLSYMS_6_12, &place);
	CHECK_EQUAL(ring_create(&keeper->ring, RING_SIZE_MIN), 0);
	CHECK_EQUAL(ring_create(&keeper->sideband, RING_SIZE_MIN), 0);
	keeper->room = (struct perf_data_room){ make_room, keeper };
	keeper->files = (struct collector_files){ begin, end, &keeper->room, interval, keeper };
	options = (struct collector_options){
		.rings = &keeper->ring,
		.ring_count = 1,
		.sideband_rings = &keeper->sideband,
		.sideband_ring_count = 1,
		.view = &keeper->guest.view,
		.registers = get_registers,
		.publish = take_kernel,
		.context = keeper,
		.output = { .frequency = 1000, .callchains = true, .vcpus = 1, .vmm_pid = 77 },
		.files = &keeper->files,
	};
	return collector_start(&keeper->collector, &options);
}

static void clean_up(struct keeper *keeper)
{
	char command[128];

	ring_destroy(keeper->ring);
	ring_destroy(keeper->sideband);
	flat_guest_destroy(&keeper->guest);
	snprintf(command, sizeof(command), "rm -rf %s", keeper->directory);
	CHECK_EQUAL(system(command), 0);
}

static void push(struct keeper *keeper, uint64_t time)
{
	struct sample *sample = ring_reserve(keeper->ring, RECORD_SAMPLE, sample_size(1));

	REQUIRE(sample);
	*sample = (struct sample){ .time = time,
				   .period = 1000,
				   .host_tid = 100,
				   .pid = SAMPLE_TASK_UNKNOWN,
				   .tid = SAMPLE_TASK_UNKNOWN,
				   .kernel_depth = 1,
				   .rip = TEXT };
	sample->callchain[0] = TEXT;
	ring_commit(keeper->ring, sample);
	ring_flush(keeper->ring);
}

/* Until COUNTER has become LEAST. */
static void wait_for(const atomic_uint *counter, unsigned int least)
{
	for (int i = 0; i < WAIT_MS && *counter < least; i++)
		usleep(1000);
	CHECK(*counter >= least);
}

struct counts {
	unsigned int samples, kernels, comms, programs;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	((struct counts *)context)->samples++;
	return 0;
}

static int count_kernel(void *context, const struct perf_data_mapping_event *mapping)
{
	((struct counts *)context)->kernels += !strcmp(mapping->name, "[kernel.kallsyms]_text");
	((struct counts *)context)->programs += !strcmp(mapping->name, PROGRAM);
	return 0;
}

static int count_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	((struct counts *)context)->comms++;
	return 0;
}

static struct counts read_file(const struct keeper *keeper, unsigned int number)
{
	struct counts counts = { 0 };
	const struct perf_data_events events = { .sample = count_sample,
						 .mapping = count_kernel,
						 .comm = count_comm,
						 .context = &counts };
	struct perf_data_reader *reader;
	char path[128];

	snprintf(path, sizeof(path), "%s/%u", keeper->directory, number);
	if (perf_data_reader_open(&reader, path))
		return counts;
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(!perf_data_reader_summary(reader)->cut_off);
	perf_data_reader_close(reader);
	return counts;
}

TEST(collector_files, each_is_whole_and_each_sample_in_one)
{
	struct keeper keeper;
	unsigned int samples = 0, first;

	REQUIRE_EQUAL(start(&keeper, 1), 0);
	wait_for(&keeper.kernels, 1);
	first = keeper.begun; /* it may have been begun before the kernel was found */
	for (unsigned int i = 0; i < 5; i++) {
		push(&keeper, 1000 + i);
		wait_for(&keeper.ended, keeper.ended + 2);
	}
	CHECK_EQUAL(collector_stop(keeper.collector, NULL), 0);
	CHECK_EQUAL(keeper.begun, keeper.ended);
	for (unsigned int i = 0; i < keeper.begun; i++) {
		struct counts counts = read_file(&keeper, i);

		samples += counts.samples;
		CHECK(counts.kernels == 1 || i < first);
		CHECK_EQUAL(counts.comms, counts.samples ? 1 : 0);
	}
	CHECK_EQUAL(samples, 5);
	CHECK_EQUAL(keeper.given, 5);
	clean_up(&keeper);
}

TEST(collector_files, file_that_cannot_be_written_is_given_up_and_the_next_is_complete)
{
	struct collector_statistics statistics;
	struct keeper keeper;

	REQUIRE_EQUAL(start(&keeper, 1), 0);
	keeper.full = true;
	push(&keeper, 1000);
	wait_for(&keeper.failed, 1);
	keeper.full = false;
	wait_for(&keeper.ended, keeper.ended + 2);
	push(&keeper, 2000);
	CHECK_EQUAL(collector_stop(keeper.collector, &statistics), 0);
	CHECK_EQUAL(statistics.samples, 2);
	CHECK_EQUAL(keeper.begun, keeper.ended);
	CHECK_EQUAL(keeper.given, 1);
	clean_up(&keeper);
}

TEST(collector_files, goes_on_where_there_could_be_none)
{
	struct keeper keeper;

	REQUIRE_EQUAL(start(&keeper, 1), 0);
	keeper.no_file = 3;
	wait_for(&keeper.begun, keeper.begun + 2);
	CHECK_EQUAL(keeper.no_file, 0);
	push(&keeper, 1000);
	CHECK_EQUAL(collector_stop(keeper.collector, NULL), 0);
	CHECK_EQUAL(keeper.given, 1);
	clean_up(&keeper);
}

/* perf.data has one kernel: samples after a reset are in the next file. */
TEST(collector_files, a_reset_begins_the_next_one)
{
	struct keeper keeper;

	REQUIRE_EQUAL(start(&keeper, NEVER), 0);
	push(&keeper, 1000);
	collector_reset(keeper.collector);
	push(&keeper, 2000);
	CHECK_EQUAL(collector_stop(keeper.collector, NULL), 0);
	CHECK_EQUAL(keeper.begun, 2);
	CHECK_EQUAL(keeper.ended, 2);
	CHECK_EQUAL(read_file(&keeper, 0).samples, 1);
	CHECK_EQUAL(read_file(&keeper, 1).samples, 1);
	clean_up(&keeper);
}

static void tell(struct keeper *keeper, const struct sideband *record)
{
	void *to = ring_reserve(keeper->sideband, RECORD_SIDEBAND, record->size);

	REQUIRE(to);
	memcpy(to, record, record->size);
	ring_commit(keeper->sideband, to);
	ring_flush(keeper->sideband);
}

static void tell_process(struct keeper *keeper, uint32_t pid, uint64_t time)
{
	const struct sideband_comm comm = {
		.head = sideband_head(SIDEBAND_COMM, sizeof(comm), time, pid),
		.comm = "program",
	};
	union {
		struct sideband_mmap mmap;
		uint8_t bytes[sizeof(struct sideband_mmap) + 24];
	} map = { .mmap = { .head = sideband_head(SIDEBAND_MMAP,
						  sideband_size(sizeof(map.mmap), PROGRAM),
						  time + 1, pid),
			    .start = 0x400000,
			    .length = 0x1000,
			    .prot = 5 } };

	memcpy(map.mmap.name, PROGRAM, sizeof(PROGRAM));
	tell(keeper, &comm.head);
	tell(keeper, &map.mmap.head);
}

static void tell_end(struct keeper *keeper, uint32_t pid, uint64_t time)
{
	const struct sideband end = sideband_head(SIDEBAND_EXIT, sizeof(end), time, pid);

	tell(keeper, &end);
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* Waits until the latest file has COUNT processes with the program. */
static void wait_for_processes(struct keeper *keeper, unsigned int count)
{
	struct counts counts = { .comms = UINT32_MAX };

	for (int i = 0; i < WAIT_MS / 10 && (counts.comms != count || counts.programs != count);
	     i++) {
		usleep(10000);
		if (keeper->ended)
			counts = read_file(keeper, keeper->ended - 1);
	}
	CHECK_EQUAL(counts.comms, count);
	CHECK_EQUAL(counts.programs, count);
}

/* A guest's report is in every file while it holds. */
TEST(collector_files, each_begins_with_the_state_of_the_guest)
{
	struct keeper keeper;

	REQUIRE_EQUAL(start(&keeper, 1), 0);
	tell_process(&keeper, 7, now());
	tell_process(&keeper, 8, now());
	wait_for_processes(&keeper, 2);
	wait_for(&keeper.ended, keeper.ended + 3);
	wait_for_processes(&keeper, 2);
	tell_end(&keeper, 8, now());
	wait_for_processes(&keeper, 1);
	CHECK_EQUAL(collector_stop(keeper.collector, NULL), 0);
	clean_up(&keeper);
}

/* After a reset there are other processes. */
TEST(collector_files, a_reset_drops_the_state_of_the_guest)
{
	struct keeper keeper;

	REQUIRE_EQUAL(start(&keeper, NEVER), 0);
	tell_process(&keeper, 7, 1000);
	collector_reset(keeper.collector);
	CHECK_EQUAL(collector_stop(keeper.collector, NULL), 0);
	CHECK_EQUAL(keeper.begun, 2);
	CHECK_EQUAL(read_file(&keeper, 0).programs, 1);
	CHECK_EQUAL(read_file(&keeper, 1).programs, 0);
	clean_up(&keeper);
}
