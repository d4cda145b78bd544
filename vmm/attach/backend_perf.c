/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf event on each vCPU thread. The kernel marks each sample with guest or host and the level
 * (PERF_RECORD_MISC_GUEST_KERNEL and _USER; kernel: perf_misc_flags()); in the guest its address is
 * the guest's RIP. Other registers are not available, so there are no stacks and no tasks.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/kvm_debugfs.h"
#include "vmm/attach/perf_event.h"

/* A PERF_RECORD_SAMPLE with PERF_SAMPLE_IP, TID, TIME and PERIOD. */
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
	struct perf_event_choice choice;
	struct perf_vcpu *vcpus; /* owned */
	struct nested_runs nested;
	/* Read before and after all samples of the current drain. */
	struct nested_count before, after;
	uint64_t after_time; /* ns, sample clock */
};

/* perf does not distinguish nested guests from the guest. */
static void open_nested(struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;

	if (!nested_runs_open(&source->nested, process->directory, process->vm_fd))
		log_debug("KVM does not report nested guests: samples of any are attributed to "
			  "the guest");
	source->before = nested_runs_read(&source->nested);
}

static int open_perf(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for perf events");
	source->target = target;
	open_nested(source);
	error = perf_event_choose(&source->choice, target->process->pid, target->frequency,
				  target->event);
	source->choice.attribute.sample_type =
		PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD;
	source->choice.attribute.watermark = 1;
	source->choice.attribute.wakeup_watermark = UINT32_MAX; /* the rings are polled */
	if (error) {
		nested_runs_close(&source->nested);
		free(source);
	} else {
		*result = source;
	}
	return error;
}

/* Tries the parent, a process that is not ours. */
static int probe(void)
{
	struct perf_event_choice choice;

	return perf_event_choose(&choice, getppid(), 1, ATTACH_CLOCK);
}

static enum attach_event event_of(const struct attach_source *source)
{
	return source->choice.event;
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	struct perf_vcpu *added = calloc(1, sizeof(*added));
	int error;

	if (!added)
		return error_set(-ENOMEM, "no memory for a perf event");
	added->vcpu = *vcpu;
	error = perf_ring_open(&added->ring, &source->choice.attribute, vcpu->tid);
	if (error) {
		free(added);
		return perf_event_explain(error, source->target->process->pid);
	}
	added->next = source->vcpus;
	source->vcpus = added;
	return 0;
}

static void read_nested_after(struct attach_source *source)
{
	source->after_time = clock_ns(CLOCK_MONOTONIC_RAW);
	source->after = nested_runs_read(&source->nested);
}

/* A nested guest is another kernel; a sample that may be of one is treated as such. */
static uint8_t guest_flags(struct attach_source *source, uint64_t time)
{
	if (time >= source->after_time)
		read_nested_after(source);
	return nested_runs_between(&source->before, &source->after) ? SAMPLE_OTHER_KERNEL : 0;
}

static void emit_sample(struct attach_source *source, const struct perf_vcpu *from,
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
		.flags = guest ? guest_flags(source, record->time) : SAMPLE_HOST,
	};

	chain.kernel_depth = kernel;
	chain.user_depth = !kernel;
	sink->sample(sink->context, &sample, &chain, NULL);
}

static void drain_vcpu(struct attach_source *source, struct perf_vcpu *from)
{
	const struct attach_sink *sink = &source->target->sink;
	const struct perf_event_header *header;

	while ((header = perf_ring_read(&from->ring))) {
		if (header->type == PERF_RECORD_SAMPLE && header->size >= sizeof(struct record))
			emit_sample(source, from, (const struct record *)header);
		else if (header->type == PERF_RECORD_LOST &&
			 header->size >= sizeof(struct lost_record))
			sink->lost(sink->context, from->vcpu.id,
				   ((const struct lost_record *)header)->lost);
	}
	perf_ring_read_done(&from->ring);
}

/* Records that arrive from now on are read by the next drain, after this reading. */
static void drain(struct attach_source *source)
{
	struct nested_count start;

	read_nested_after(source);
	start = source->after;
	for (struct perf_vcpu *vcpu = source->vcpus; vcpu; vcpu = vcpu->next)
		drain_vcpu(source, vcpu);
	source->before = start;
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	struct perf_vcpu **link = &source->vcpus;

	while (*link && (*link)->vcpu.id != id)
		link = &(*link)->next;
	if (*link) {
		struct perf_vcpu *removed = *link;

		*link = removed->next;
		drain_vcpu(source, removed);
		perf_ring_close(&removed->ring);
		free(removed);
	}
}

static bool close_perf(struct attach_source *source)
{
	while (source->vcpus)
		remove_vcpu(source, source->vcpus->vcpu.id);
	nested_runs_close(&source->nested);
	free(source);
	return true;
}

const struct attach_backend attach_perf = {
	.name = "perf",
	.is = "perf events on the vCPU threads: samples without call chains",
	.has_cycles = true,
	.probe = probe,
	.open = open_perf,
	.event = event_of,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.drain = drain,
	.close = close_perf,
};
