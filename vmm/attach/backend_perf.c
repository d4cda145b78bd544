// SPDX-License-Identifier: Apache-2.0
/*
 * A perf event on each vCPU thread. The kernel itself says of each sample
 * whether it was taken in the guest, and at which level
 * (PERF_RECORD_MISC_GUEST_KERNEL and _USER; kernel: perf_misc_flags()); then
 * its address is the guest's RIP. It gives no other register: no stacks, no tasks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/error.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/perf_ring.h"

#define NANOSECONDS 1000000000ull

/* What a record of ours holds behind its header: PERF_SAMPLE_IP, TID, TIME, PERIOD. */
struct record {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, period;
};

struct lost_record {
	struct perf_event_header header;
	uint64_t id, lost;
};

struct perf_vcpu {
	struct vmm_vcpu vcpu;
	struct perf_ring ring;
	struct perf_vcpu *next;
};

struct attach_source {
	const struct attach_target *target;
	enum attach_event event;
	struct perf_event_attr attribute;
	struct perf_vcpu *vcpus; /* owned */
};

static void describe(struct attach_source *source, enum attach_event event)
{
	source->event = event;
	source->attribute = (struct perf_event_attr){
		.size = sizeof(source->attribute),
		.type = event == ATTACH_CYCLES ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE,
		.config = event == ATTACH_CYCLES ? PERF_COUNT_HW_CPU_CYCLES : PERF_COUNT_SW_CPU_CLOCK,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW, /* that of all samples */
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX, /* nobody waits: the rings are looked at */
	};
	if (event == ATTACH_CYCLES) {
		source->attribute.freq = 1;
		source->attribute.sample_freq = source->target->frequency;
	} else {
		source->attribute.sample_period = NANOSECONDS / source->target->frequency;
	}
}

static int explain(int error, const struct attach_source *source)
{
	if (error == -EACCES || error == -EPERM)
		return error_set(
			-EACCES,
			"perf may not sample process %d, the guest and the kernel included: be root, or "
			"have CAP_PERFMON (see /proc/sys/kernel/perf_event_paranoid)",
			source->target->process->pid);
	if (error == -ENOSYS)
		return error_set(-ENOTSUP, "this kernel has no perf events");
	return error_set(error, "perf can not sample process %d: %s", source->target->process->pid,
			 strerror(-error));
}

/* Cycles where they can be counted, of this very thread: else the clock. */
static int choose_event(struct attach_source *source)
{
	struct perf_ring *ring = calloc(1, sizeof(*ring));
	pid_t tid = source->target->process->pid;
	int error;

	if (!ring)
		return error_set(-ENOMEM, "no memory for a perf event");
	describe(source, ATTACH_CYCLES);
	error = perf_ring_open(ring, &source->attribute, tid);
	if (error && error != -EACCES && error != -EPERM) {
		describe(source, ATTACH_CLOCK);
		error = perf_ring_open(ring, &source->attribute, tid);
	}
	if (!error)
		perf_ring_close(ring);
	free(ring);
	return error ? explain(error, source) : 0;
}

static int open_perf(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for perf events");
	source->target = target;
	error = choose_event(source);
	if (error)
		free(source);
	else
		*result = source;
	return error;
}

static enum attach_event event_of(const struct attach_source *source)
{
	return source->event;
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	struct perf_vcpu *added = calloc(1, sizeof(*added));
	int error;

	if (!added)
		return error_set(-ENOMEM, "no memory for a perf event");
	added->vcpu = *vcpu;
	error = perf_ring_open(&added->ring, &source->attribute, vcpu->tid);
	if (error) {
		free(added);
		return explain(error, source);
	}
	added->next = source->vcpus;
	source->vcpus = added;
	return 0;
}

static void take_sample(const struct attach_source *source, const struct perf_vcpu *from,
			const struct record *record)
{
	const struct attach_sink *sink = &source->target->sink;
	uint16_t mode = record->header.misc & PERF_RECORD_MISC_CPUMODE_MASK;
	bool guest = mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_GUEST_USER;
	bool kernel = mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_KERNEL;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX] = { record->ip };
	struct guest_callchain chain = { .capacity = SAMPLE_CALLCHAIN_MAX, .addresses = addresses };
	struct sample sample = {
		.time = record->time,
		.period = record->period,
		.rip = record->ip,
		.vcpu = from->vcpu.id,
		.host_tid = record->tid,
		.cpl = kernel ? 0 : 3,
		.flags = guest ? 0 : SAMPLE_HOST,
	};

	chain.kernel_depth = kernel;
	chain.user_depth = !kernel;
	sink->sample(sink->context, &sample, &chain);
}

static void drain_vcpu(const struct attach_source *source, struct perf_vcpu *from)
{
	const struct attach_sink *sink = &source->target->sink;
	const struct perf_event_header *header;

	while ((header = perf_ring_read(&from->ring))) {
		if (header->type == PERF_RECORD_SAMPLE && header->size >= sizeof(struct record))
			take_sample(source, from, (const struct record *)header);
		else if (header->type == PERF_RECORD_LOST && header->size >= sizeof(struct lost_record))
			sink->lost(sink->context, from->vcpu.id, ((const struct lost_record *)header)->lost);
	}
	perf_ring_read_done(&from->ring);
}

static void drain(struct attach_source *source)
{
	for (struct perf_vcpu *vcpu = source->vcpus; vcpu; vcpu = vcpu->next)
		drain_vcpu(source, vcpu);
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	struct perf_vcpu **link = &source->vcpus;

	while (*link && (*link)->vcpu.id != id)
		link = &(*link)->next;
	if (*link) {
		struct perf_vcpu *gone = *link;

		*link = gone->next;
		drain_vcpu(source, gone);
		perf_ring_close(&gone->ring);
		free(gone);
	}
}

static void close_perf(struct attach_source *source)
{
	while (source->vcpus)
		remove_vcpu(source, source->vcpus->vcpu.id);
	free(source);
}

const struct attach_backend attach_perf = {
	.name = "perf",
	.is = "perf events on the vCPU threads: where the guest was, without its callers",
	.open = open_perf,
	.event = event_of,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.drain = drain,
	.close = close_perf,
};
