/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at vCPUs at random moments, by stopping their threads (vcpu_stop.h), from threads of its
 *own: the kernel wants all that is done to a stopped thread on one thread.
 *
 *	threads "stops": looks --queue--> who takes them
 *
 * When to look is told by the host's clock, at moments that do not depend on each other
 *(poisson_times.h), so that neither a rhythm of the guest nor how long it works between sleeps
 *counts. A thread that sleeps at that moment is not stopped. A look stands for the CPU time that
 *the thread has used since the last one that found it running, so that all of them together stand
 *for what it used, and one that waited for a processor all the time for nothing: that is no sample.
 *After a look as long as it took nothing is looked at; moments that come meanwhile are left out.
 *
 * How long a look takes is up to the other process: its thread may not come out of the kernel, its
 *memory may not come. After 100 ms another thread looks at the other vCPUs.
 *
 *	stop_sampler_statistics	any thread
 *	all others		one thread, the taker's
 */
#ifndef KVMSCOPE_ATTACH_STOP_SAMPLING_H
#define KVMSCOPE_ATTACH_STOP_SAMPLING_H

#include "vmm/attach/vcpu_stop.h"

struct stop_sampler;

struct stop_sample {
	struct stopped_vcpu vcpu;
	uint64_t period; /* ns of CPU time of the thread that it stands for */
	unsigned int id; /* of the vCPU */
	pid_t tid;
};

/* TARGET is copied; what it points to outlives the sampler. FREQUENCY in Hz, of each vCPU. -ENOMEM
 * and the errors of pthread_create(), with the message. */
int stop_sampler_start(struct stop_sampler **sampler, const struct vcpu_stop_target *target,
		       unsigned int frequency);

/* From now on; or -ESRCH: its thread has ended, -ENOMEM, with the message. */
int stop_sampler_add(struct stop_sampler *sampler, const struct vmm_vcpu *vcpu);
void stop_sampler_remove(struct stop_sampler *sampler, unsigned int id);

/* Looks at vCPU ID have its tasks from now on, where they can be read in time. CPU is copied. */
void stop_sampler_set_cpu(struct stop_sampler *sampler, unsigned int id,
			  const struct attach_cpu *cpu);

/* The oldest sample, until stop_sampler_release(); NULL: there is none. */
struct stop_sample *stop_sampler_next(struct stop_sampler *sampler);
void stop_sampler_release(struct stop_sampler *sampler);

/* For each vCPU of which samples were lost since the last time, their number. */
void stop_sampler_report_lost(struct stop_sampler *sampler,
			      void (*lost)(void *context, unsigned int id, uint64_t count),
			      void *context);

void stop_sampler_statistics(struct stop_sampler *sampler, struct attach_stops *stops);

/*
 * Nothing is stopped any more. False: a thread still waits, after 2 s, for a vCPU's thread that
 * does not come out of the kernel; a warning says so. What belongs to the sampler, and what its
 * target points to, is its to use from then on. Works on NULL.
 */
bool stop_sampler_end(struct stop_sampler *sampler);

#endif
