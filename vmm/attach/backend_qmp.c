/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's own monitor: for guests that QEMU emulates (TCG), which no event of the kernel can tell
 * from QEMU itself, and where nothing else is allowed. It tells where the guest is, and nothing
 * that callers could be found by: the guest runs on while its registers are read, so stack and RIP
 * would be of different moments (qmp_reader.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/libvirt_domain.h"
#include "vmm/attach/qmp_reader.h"

#define TAKEN_AT_ONCE 64

struct attach_source {
	const struct attach_target *target;
	struct looker *looker;
	struct qmp_vcpu told[VMM_VCPUS_MAX]; /* when threads were looked for last */
	size_t told_count;
};

static int probe(void)
{
	return domain_probe();
}

/* libvirt passes commands on, and marks the domain for it. */
static void tell_taint(const struct attach_target *target)
{
	if (target->monitor.domain && !target->monitor.socket)
		log_info(
			"libvirt marks the domain '%s' as tainted (custom-monitor): its monitor is asked",
			target->monitor.domain);
}

static int open_qmp(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	source->target = target;
	error = looker_start(&source->looker, &target->monitor, target->process, target->frequency);
	if (error) {
		free(source);
		return error;
	}
	tell_taint(target);
	*result = source;
	return 0;
}

static enum attach_event event_of(const struct attach_source *source)
{
	return ATTACH_CLOCK;
}

/* Threads are looked for when the monitor tells others than the last time. */
static void tell_threads(struct attach_source *source, struct vmm_process *process)
{
	struct qmp_vcpu told[VMM_VCPUS_MAX];
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX];
	size_t count = looker_vcpus(source->looker, told);

	if (count == source->told_count && !memcmp(told, source->told, count * sizeof(told[0])))
		return;
	for (size_t i = 0; i < count; i++)
		vcpus[i] = (struct vmm_vcpu){ .id = told[i].id,
					      .tid = vmm_process_find_thread(process, told[i].tid),
					      .found = "QEMU" };
	vmm_process_set_vcpus(process, vcpus, count);
	memcpy(source->told, told, count * sizeof(told[0]));
	source->told_count = count;
}

static int find_slots(struct attach_source *source, struct vmm_slot *slots)
{
	size_t count = looker_slots(source->looker, slots);

	return count ? (int)count
		     : error_set(-ENOTSUP, "QEMU's monitor does not tell the guest's memory");
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	return looker_add(source->looker, vcpu);
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	looker_remove(source->looker, id);
}

/* RSP and RBP are left out: they are of another moment than RIP. */
static void give_sample(const struct attach_source *source, const struct look *look)
{
	const struct attach_sink *sink = &source->target->sink;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX] = { look->registers.rip };
	struct guest_callchain chain = { .capacity = SAMPLE_CALLCHAIN_MAX, .addresses = addresses };
	const struct attach_stack stack = { .registers = look->registers };
	struct sample sample = {
		.time = look->time,
		.period = look->period,
		.rip = look->registers.rip,
		.cr3 = look->registers.paging.cr3,
		.vcpu = look->id,
		.host_tid = (uint32_t)look->tid,
		.cpl = look->registers.cpl,
		.flags = look->smm ? SAMPLE_OTHER_KERNEL : 0,
	};

	chain.kernel_depth = !sample.cpl;
	chain.user_depth = !chain.kernel_depth;
	sink->sample(sink->context, &sample, &chain, &stack);
}

static void drain(struct attach_source *source)
{
	const struct attach_sink *sink = &source->target->sink;
	struct look looks[TAKEN_AT_ONCE];
	uint64_t lost;
	size_t count;

	do {
		count = looker_take(source->looker, looks, TAKEN_AT_ONCE, &lost);
		if (lost)
			sink->lost(sink->context, source->told[0].id, lost);
		for (size_t i = 0; i < count; i++)
			give_sample(source, &looks[i]);
	} while (count == TAKEN_AT_ONCE);
}

/* Registers of KVM's vCPUs are read by their own threads, outside of the guest. */
static void tell_rate(const struct attach_source *source)
{
	struct looker_statistics did;

	looker_statistics(source->looker, &did);
	if (did.looks && did.elapsed)
		log_info(
			"the monitor was asked %.1f times a second, %.1f ms each, %.1f ms of them in QEMU's main loop, "
			"while the guest ran on%s",
			(double)did.looks * 1e9 / (double)did.elapsed,
			(double)did.time / (double)did.looks / 1e6,
			(double)did.of_main_loop / (double)did.looks / 1e6,
			source->target->process->monitored ? ""
							   : " but for its registers to be read");
}

static bool close_qmp(struct attach_source *source)
{
	tell_rate(source);
	looker_stop(source->looker);
	free(source);
	return true;
}

const struct attach_backend attach_qmp = {
	.name = "qmp",
	.is = "QEMU's monitor, asked up to 200 times a second: where the guest was, without its callers",
	.frequency_max = LOOKER_FREQUENCY_MAX,
	.emulated = true,
	.probe = probe,
	.open = open_qmp,
	.event = event_of,
	.threads = tell_threads,
	.slots = find_slots,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.drain = drain,
	.close = close_qmp,
};
