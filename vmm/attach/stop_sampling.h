/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples vCPUs at random times by stopping their threads (vcpu_stop.h), on threads of its own: the
 * kernel allows only one thread to work on a stopped thread.
 *
 *	threads "stops": samples --queue--> consumer
 *
 * The times are those of a Poisson process (poisson_times.h), so that neither periodic work of the
 * guest nor the length of its bursts biases the result. A sleeping thread is not stopped. A sample
 * stands for the CPU time since the last sample of the running thread, so all samples together
 * stand for the CPU time used; a thread that only waited for a CPU yields no sample. After a read,
 * nothing is read for as long as it took; times in between are skipped.
 *
 * The other process determines how long a read takes: its thread may be stuck in the kernel, or its
 * memory may not arrive. After 100 ms another thread samples the other vCPUs.
 *
 *	stop_sampler_statistics	any thread
 *	all others		one thread, the consumer's: the attach thread
 */
#ifndef KVMSCOPE_ATTACH_STOP_SAMPLING_H
#define KVMSCOPE_ATTACH_STOP_SAMPLING_H

#include "vmm/attach/vcpu_stop.h"

struct stop_sampler;

struct stop_sample {
	struct stopped_vcpu vcpu;
	uint64_t period; /* ns of the thread's CPU time */
	unsigned int id; /* of the vCPU */
	pid_t tid;
};

/* Copies TARGET; what it points to outlives the sampler. FREQUENCY in Hz per vCPU. -ENOMEM and
 * the errors of pthread_create(), with the message. */
int stop_sampler_start(struct stop_sampler **sampler, const struct vcpu_stop_target *target,
		       unsigned int frequency);

/* Samples VCPU from now on. -ESRCH: its thread has exited; -ENOMEM; with the message. */
int stop_sampler_add(struct stop_sampler *sampler, const struct vmm_vcpu *vcpu);
void stop_sampler_remove(struct stop_sampler *sampler, unsigned int id);

/* Samples of vCPU ID include its tasks from now on, if there is time. CPU is copied. */
void stop_sampler_set_cpu(struct stop_sampler *sampler, unsigned int id,
			  const struct attach_cpu *cpu);

/* The oldest sample, valid until stop_sampler_release(); NULL: none. */
struct stop_sample *stop_sampler_next(struct stop_sampler *sampler);
void stop_sampler_release(struct stop_sampler *sampler);

/* Calls LOST for each vCPU with samples lost since the last call. */
void stop_sampler_report_lost(struct stop_sampler *sampler,
			      void (*lost)(void *context, unsigned int id, uint64_t count),
			      void *context);

void stop_sampler_statistics(struct stop_sampler *sampler, struct attach_stops *stops);

/*
 * Ends sampling. False: after 2 s a thread still waits for a vCPU thread that is stuck in the
 * kernel; that is logged as a warning. The sampler and what its target points to then stay in use.
 * NULL is allowed.
 */
bool stop_sampler_end(struct stop_sampler *sampler);

#endif
