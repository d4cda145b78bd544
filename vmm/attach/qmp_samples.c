/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_samples.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/proc_files.h"

/* The kernel updates the CPU time of a running thread once per tick: up to this number of
 * samples share it. */
#define UNTIMED_MAX 8

struct qmp_sampled_vcpu {
	struct vmm_vcpu vcpu;
	int time_fd;   /* schedstat of its thread */
	uint64_t used; /* ns of the thread's CPU time already attributed to samples */
	struct qmp_sample untimed[UNTIMED_MAX];
	size_t untimed_count;
	bool runs; /* in the last read */
};

/* ns; 0: unknown */
static uint64_t read_used(int fd)
{
	struct thread_cpu_times times;

	return thread_cpu_times_read(fd, &times) ? times.ran : 0;
}

static void queue_sample(struct qmp_samples *samples, const struct qmp_sample *sample)
{
	if (samples->queued == QMP_SAMPLES_QUEUE) {
		samples->lost++;
		return;
	}
	samples->queue[(samples->first + samples->queued++) % QMP_SAMPLES_QUEUE] = *sample;
}

/* Divides PERIOD among the waiting samples. */
static void settle(struct qmp_samples *samples, struct qmp_sampled_vcpu *vcpu, uint64_t period)
{
	size_t count = vcpu->untimed_count;

	for (size_t i = 0; i < count; i++) {
		vcpu->untimed[i].period = period / count;
		queue_sample(samples, &vcpu->untimed[i]);
	}
	vcpu->untimed_count = 0;
}

/* Attributes the CPU time of one thread, that of vCPU FIRST, equally to its running vCPUs. */
static void settle_thread(struct qmp_samples *samples, size_t first)
{
	pid_t tid = samples->vcpus[first]->vcpu.tid;
	uint64_t used = read_used(samples->vcpus[first]->time_fd), period, running = 0;

	for (size_t i = first; i < samples->count; i++)
		running += samples->vcpus[i]->vcpu.tid == tid && samples->vcpus[i]->runs;
	if (!running || used <= samples->vcpus[first]->used)
		return;
	period = (used - samples->vcpus[first]->used) / running;
	for (size_t i = first; i < samples->count; i++) {
		struct qmp_sampled_vcpu *vcpu = samples->vcpus[i];

		if (vcpu->vcpu.tid != tid)
			continue;
		vcpu->used = used;
		if (vcpu->runs)
			settle(samples, vcpu, period);
	}
}

static bool is_first_of_thread(const struct qmp_samples *samples, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (samples->vcpus[i]->vcpu.tid == samples->vcpus[index]->vcpu.tid)
			return false;
	return true;
}

static struct qmp_sampled_vcpu *find(const struct qmp_samples *samples, unsigned int id)
{
	for (size_t i = 0; i < samples->count; i++)
		if (samples->vcpus[i]->vcpu.id == id)
			return samples->vcpus[i];
	return NULL;
}

static void add_sample(struct qmp_samples *samples, const struct qmp_registers *parsed,
		       uint64_t time)
{
	struct qmp_sampled_vcpu *vcpu = find(samples, parsed->id);

	if (!vcpu || vcpu->runs || parsed->halted)
		return;
	vcpu->runs = true;
	if (vcpu->untimed_count == UNTIMED_MAX)
		memmove(vcpu->untimed, vcpu->untimed + 1,
			--vcpu->untimed_count * sizeof(vcpu->untimed[0]));
	vcpu->untimed[vcpu->untimed_count++] = (struct qmp_sample){
		.id = parsed->id,
		.tid = vcpu->vcpu.tid,
		.time = time,
		.registers = parsed->registers,
		.smm = parsed->smm,
	};
}

void qmp_samples_add_text(struct qmp_samples *samples, const char *text, uint64_t time)
{
	struct qmp_registers parsed;

	for (size_t i = 0; i < samples->count; i++)
		samples->vcpus[i]->runs = false;
	while (qmp_parse_registers(&text, &parsed))
		add_sample(samples, &parsed, time);
	for (size_t i = 0; i < samples->count; i++)
		if (is_first_of_thread(samples, i))
			settle_thread(samples, i);
}

void qmp_samples_count_gap(struct qmp_samples *samples, uint64_t interval)
{
	for (size_t i = 0; i < samples->count; i++) {
		struct qmp_sampled_vcpu *vcpu = samples->vcpus[i];
		uint64_t used = read_used(vcpu->time_fd);

		if (used > vcpu->used)
			samples->missed += used - vcpu->used;
		vcpu->used = used > vcpu->used ? used : vcpu->used;
		vcpu->untimed_count = 0;
	}
	samples->lost += samples->missed / interval;
	samples->missed %= interval;
}

int qmp_samples_add_vcpu(struct qmp_samples *samples, const struct vmm_process *process,
			 const struct vmm_vcpu *vcpu)
{
	struct qmp_sampled_vcpu *added = calloc(1, sizeof(*added));

	if (!added)
		return error_set(-ENOMEM, "no memory for a vCPU");
	*added = (struct qmp_sampled_vcpu){ .vcpu = *vcpu,
					    .time_fd = proc_open_thread_file(
						    process->directory, vcpu->tid, "schedstat") };
	if (added->time_fd < 0) {
		free(added);
		return error_set(-ESRCH, "thread %d of process %d has ended", vcpu->tid,
				 process->pid);
	}
	added->used = read_used(added->time_fd);
	assert(samples->count < VMM_VCPUS_MAX);
	samples->vcpus[samples->count++] = added;
	return 0;
}

static void free_vcpu(struct qmp_sampled_vcpu *vcpu)
{
	close(vcpu->time_fd);
	free(vcpu);
}

void qmp_samples_remove_vcpu(struct qmp_samples *samples, unsigned int id)
{
	for (size_t i = 0; i < samples->count; i++)
		if (samples->vcpus[i]->vcpu.id == id) {
			free_vcpu(samples->vcpus[i]);
			samples->vcpus[i] = samples->vcpus[--samples->count];
			break;
		}
}

void qmp_samples_free(struct qmp_samples *samples)
{
	while (samples->count)
		free_vcpu(samples->vcpus[--samples->count]);
}

size_t qmp_samples_consume(struct qmp_samples *samples, struct qmp_sample *to, size_t max,
			   uint64_t *lost)
{
	size_t count;

	for (count = 0; count < max && samples->queued; count++, samples->queued--) {
		to[count] = samples->queue[samples->first];
		samples->first = (samples->first + 1) % QMP_SAMPLES_QUEUE;
	}
	*lost = samples->lost;
	samples->lost = 0;
	return count;
}
