/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sideband_guest.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"

#define CODE        SIDEBAND_GUEST_CODE
#define SIZE        0x1000u
#define MICROSECOND 1000ull

/* The VMM has the PID of a process of the guest. */
#define VMM_PID 50
#define UNKNOWN SAMPLE_TASK_LIMIT

/*
 * Event i happens at i microseconds, and the sample of the same number in the middle of the
 * following one. The time of MAP_ABOUT is known within 2 microseconds.
 */
enum kind { EXEC, MAP, UNMAP, FORK, EXIT, NAME, MAP_ABOUT };

static const struct event {
	enum kind kind;
	uint32_t pid, parent;
	const char *name;
} events[] = {
	{ EXEC, 50, 0, "one" },
	{ MAP, 50, 0, "/bin/one" },
	{ EXEC, 50, 0, "two" },
	{ MAP, 50, 0, "/bin/two" },
	{ UNMAP, 50, 0, NULL },
	{ MAP, 50, 0, "/lib/plugin.so" },
	{ FORK, 51, 50, NULL },
	{ NAME, 51, 0, "child" },
	{ EXIT, 50, 0, NULL },
	{ FORK, 50, 51, NULL },
	{ MAP, 50, 0, "/lib/other.so" },
	{ EXIT, 51, 0, NULL },
	{ EXEC, 52, 0, "third" },
	{ MAP, 52, 0, "/bin/third" },
	{ MAP_ABOUT, 52, 0, "/lib/late.so" },
};

/* As perf displays memory without a file: "/lib/other.so". */
const struct sideband_guest_sample sideband_guest_samples[] = {
	{ 50, "one", "[unknown]" },   { 50, "one", "one" },
	{ 50, "two", "[unknown]" },   { 50, "two", "two" },
	{ 50, "two", "[unknown]" },   { 50, "two", "plugin.so" },
	{ 51, "two", "plugin.so" },   { 51, "child", "plugin.so" },
	{ 51, "child", "plugin.so" }, { 50, "child", "plugin.so" },
	{ 50, "child", "other.so" },  { UNKNOWN, "vcpu 0", "[unknown]" },
	{ 52, "third", "[unknown]" }, { 52, "third", "[unknown]" },
	{ 52, "third", "[unknown]" },
};
const size_t sideband_guest_count =
	sizeof(sideband_guest_samples) / sizeof(sideband_guest_samples[0]);

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void push_samples(struct ring *ring, uint64_t start)
{
	for (size_t i = 0; i < sideband_guest_count; i++) {
		struct sample *sample = ring_reserve(ring, RECORD_SAMPLE, sample_size(2));
		uint32_t pid = sideband_guest_samples[i].pid;

		*sample = (struct sample){
			.time = start + i * MICROSECOND + MICROSECOND / 2,
			.period = 1000,
			.rip = CODE + 0x10,
			.host_tid = VMM_PID,
			.cpl = 3,
			.pid = pid == UNKNOWN ? SAMPLE_TASK_UNKNOWN : pid,
			.tid = pid == UNKNOWN ? SAMPLE_TASK_UNKNOWN : pid,
			.user_depth = 2,
		};
		sample->callchain[0] = sample->callchain[1] = CODE + 0x10;
		ring_commit(ring, sample);
	}
	ring_flush(ring);
}

static void push_mapping(struct ring *ring, struct sideband head, const char *name)
{
	struct sideband_mmap *mmap;

	head.size = sideband_size(sizeof(*mmap), name);
	mmap = ring_reserve(ring, RECORD_SIDEBAND, head.size);
	memset(mmap, 0, head.size);
	*mmap = (struct sideband_mmap){
		.head = head,
		.start = CODE,
		.length = SIZE,
		.prot = PROT_READ | PROT_EXEC,
		.map_flags = MAP_PRIVATE,
	};
	strcpy(mmap->name, name);
	ring_commit(ring, mmap);
}

static void push_record(struct ring *ring, struct sideband *record, size_t size)
{
	void *payload = ring_reserve(ring, RECORD_SIDEBAND, size);

	record->size = (uint32_t)size;
	memcpy(payload, record, size);
	ring_commit(ring, payload);
}

static void push_event(struct ring *ring, const struct event *event, uint64_t time)
{
	static const uint16_t types[] = { SIDEBAND_COMM, SIDEBAND_MMAP, SIDEBAND_MUNMAP,
					  SIDEBAND_FORK, SIDEBAND_EXIT, SIDEBAND_COMM,
					  SIDEBAND_MMAP };
	struct sideband head = { .type = types[event->kind],
				 .time = time,
				 .time_error = event->kind == MAP_ABOUT ? 2 * MICROSECOND : 0,
				 .pid = event->pid,
				 .tid = event->pid };
	struct sideband_comm comm = { .head = head };
	struct sideband_fork fork = { head, event->parent, event->parent };
	struct sideband_munmap munmap = { head, CODE, SIZE };

	switch (event->kind) {
	case EXEC:
	case NAME:
		comm.head.flags = event->kind == EXEC ? SIDEBAND_COMM_EXEC : 0;
		snprintf(comm.comm, sizeof(comm.comm), "%s", event->name);
		push_record(ring, &comm.head, sizeof(comm));
		break;
	case MAP:
	case MAP_ABOUT:
		push_mapping(ring, head, event->name);
		break;
	case UNMAP:
		push_record(ring, &munmap.head, sizeof(munmap));
		break;
	case FORK:
		push_record(ring, &fork.head, sizeof(fork));
		break;
	case EXIT:
		push_record(ring, &head, sizeof(head));
		break;
	}
}

static void push_events(struct ring *ring, uint64_t start)
{
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		push_event(ring, &events[i], start + i * MICROSECOND);
	ring_flush(ring);
}

static bool no_registers(void *context, struct guest_registers *registers)
{
	return false;
}

static int record(const char *path, enum perspective perspective,
		  const struct flight_options *flight, struct collector_statistics *statistics)
{
	const struct ring_options ring = { .size = RING_SIZE_MIN,
					   .mode = flight ? RING_MODE_OVERWRITE
							  : RING_MODE_CONSUMER };
	struct ring *samples = NULL, *sideband = NULL;
	struct guest_view nothing = { 0 };
	struct collector_options options = {
		.rings = &samples,
		.ring_count = 1,
		.sideband_rings = &sideband,
		.sideband_ring_count = 1,
		.view = &nothing,
		.registers = no_registers,
		.output = { .path = path,
			    .perspective = perspective,
			    .frequency = 1000,
			    .callchains = true,
			    .vcpus = 1,
			    .vmm_pid = VMM_PID },
		.flight = flight,
	};
	struct collector *collector;
	uint64_t start = now();
	int error = ring_create_with(&samples, &ring);

	if (!error)
		error = ring_create(&sideband, RING_SIZE_MIN);
	if (!error)
		error = collector_start(&collector, &options);
	if (!error) {
		push_samples(samples, start);
		push_events(sideband, start);
		if (flight)
			atomic_store((atomic_bool *)flight->context, true);
		error = collector_stop(collector, statistics);
	}
	ring_destroy(samples);
	ring_destroy(sideband);
	return error;
}

int sideband_guest_record(const char *path, enum perspective perspective,
			  struct collector_statistics *statistics)
{
	return record(path, perspective, NULL, statistics);
}

static bool handle_trigger(void *context, struct flight_trigger *trigger)
{
	if (!atomic_exchange((atomic_bool *)context, false))
		return false;
	*trigger = (struct flight_trigger){ .listed = { now() + 1000000000, "test", "" } };
	return true;
}

static uint64_t none_missed(void *context)
{
	return 0;
}

static void ignore_result(void *context, const struct flight_result *result)
{
}

int sideband_guest_flight(const char *path)
{
	atomic_bool triggered = false;
	const struct flight_options flight = {
		.wake_fd = -1,
		.next_trigger = handle_trigger,
		.missed = none_missed,
		.done = ignore_result,
		.context = &triggered,
	};

	return record(path, PERSPECTIVE_GUEST, &flight, NULL);
}
