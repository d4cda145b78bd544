/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's monitor: for guests that QEMU emulates (TCG), which kernel events cannot distinguish from
 * QEMU itself, and where nothing else is allowed. There are no call chains: the guest keeps running
 * while its registers are read, so stack and RIP are of different times (qmp_reader.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/libvirt_domain.h"
#include "vmm/attach/qmp_reader.h"

#define BATCH 64

struct attach_source {
	const struct attach_target *target;
	struct qmp_reader *reader;
	struct qmp_vcpu reported[VMM_VCPUS_MAX]; /* at the last update of the threads */
	size_t reported_count;
};

static int probe(void)
{
	return domain_probe();
}

/* libvirt passes commands on, but marks the domain as tainted. */
static void log_taint(const struct attach_target *target)
{
	if (target->monitor.domain && !target->monitor.socket)
		log_info("libvirt marks the domain '%s' as tainted (custom-monitor), as its "
			 "monitor is used",
			 target->monitor.domain);
}

static int open_qmp(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	source->target = target;
	error = qmp_reader_start(&source->reader, &target->monitor, target->process,
				 target->frequency);
	if (error) {
		free(source);
		return error;
	}
	log_taint(target);
	*result = source;
	return 0;
}

static enum attach_event event_of(const struct attach_source *source)
{
	return ATTACH_CLOCK;
}

/* Searches for threads only if the monitor reports other ones than the last time. */
static void update_threads(struct attach_source *source, struct vmm_process *process)
{
	struct qmp_vcpu reported[VMM_VCPUS_MAX];
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX];
	size_t count = qmp_reader_vcpus(source->reader, reported);

	if (count == source->reported_count &&
	    !memcmp(reported, source->reported, count * sizeof(reported[0])))
		return;
	for (size_t i = 0; i < count; i++)
		vcpus[i] =
			(struct vmm_vcpu){ .id = reported[i].id,
					   .tid = vmm_process_find_thread(process, reported[i].tid),
					   .found = "QEMU" };
	vmm_process_set_vcpus(process, vcpus, count);
	memcpy(source->reported, reported, count * sizeof(reported[0]));
	source->reported_count = count;
}

static int find_slots(struct attach_source *source, struct vmm_slot *slots)
{
	size_t count = qmp_reader_slots(source->reader, slots);

	return count ? (int)count
		     : error_set(-ENOTSUP, "QEMU's monitor does not report the guest's memory");
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	return qmp_reader_add(source->reader, vcpu);
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	qmp_reader_remove(source->reader, id);
}

/* Without RSP and RBP, which are of another time than RIP. */
static void emit_sample(const struct attach_source *source, const struct qmp_sample *from)
{
	const struct attach_sink *sink = &source->target->sink;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX] = { from->registers.rip };
	struct guest_callchain chain = { .capacity = SAMPLE_CALLCHAIN_MAX, .addresses = addresses };
	const struct attach_guest_state stack = { .registers = from->registers };
	struct sample sample = {
		.time = from->time,
		.period = from->period,
		.rip = from->registers.rip,
		.cr3 = from->registers.paging.cr3,
		.vcpu = from->id,
		.host_tid = (uint32_t)from->tid,
		.cpl = from->registers.cpl,
		.flags = from->smm ? SAMPLE_OTHER_KERNEL : 0,
	};

	chain.kernel_depth = !sample.cpl;
	chain.user_depth = !chain.kernel_depth;
	sink->sample(sink->context, &sample, &chain, &stack);
}

static void drain(struct attach_source *source)
{
	const struct attach_sink *sink = &source->target->sink;
	struct qmp_sample samples[BATCH];
	uint64_t lost;
	size_t count;

	do {
		count = qmp_reader_consume(source->reader, samples, BATCH, &lost);
		if (lost)
			sink->lost(sink->context, source->reported[0].id, lost);
		for (size_t i = 0; i < count; i++)
			emit_sample(source, &samples[i]);
	} while (count == BATCH);
}

/* KVM vCPU threads leave the guest to read their registers. */
static void log_rate(const struct attach_source *source)
{
	struct qmp_reader_statistics statistics;

	qmp_reader_statistics(source->reader, &statistics);
	if (statistics.samples && statistics.elapsed)
		log_info("monitor: %.1f queries per second, %.1f ms each, of which %.1f ms in "
			 "QEMU's main loop; the guest kept running%s",
			 (double)statistics.samples * 1e9 / (double)statistics.elapsed,
			 (double)statistics.time / (double)statistics.samples / 1e6,
			 (double)statistics.main_loop / (double)statistics.samples / 1e6,
			 source->target->process->monitored ? ""
							    : " except while registers were read");
}

static bool close_qmp(struct attach_source *source)
{
	log_rate(source);
	qmp_reader_stop(source->reader);
	free(source);
	return true;
}

const struct attach_backend attach_qmp = {
	.name = "qmp",
	.is = "QEMU's monitor, queried up to 200 times per second: samples without "
	      "call chains",
	.frequency_max = QMP_READER_FREQUENCY_MAX,
	.emulated = true,
	.probe = probe,
	.open = open_qmp,
	.event = event_of,
	.threads = update_threads,
	.slots = find_slots,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.drain = drain,
	.close = close_qmp,
};
