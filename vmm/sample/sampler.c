/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/vm.h"
#include "vmm/sample/sampler_state.h"

int sampler_create(struct sampler **result, const struct sampler_options *options)
{
	size_t size = sizeof(struct sampler) + options->vcpus * sizeof(struct vcpu_sampler);
	struct sampler *sampler;

	assert(options->vcpus >= 1 && options->vcpus <= VM_CPUS_MAX);
	if (!options->frequency || options->frequency > SAMPLING_FREQUENCY_MAX)
		return error_set(-EINVAL, "a sampling frequency of %u Hz is out of range: 1 to %u",
				 options->frequency, SAMPLING_FREQUENCY_MAX);
	sampler = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (!sampler)
		return error_set(-ENOMEM, "no memory for the sampler");
	memset(sampler, 0, size);
	sampler->options = *options;
	atomic_init(&sampler->frequency, options->paused ? 0 : options->frequency);
	for (unsigned int i = 0; i < options->vcpus; i++)
		sampler->vcpus[i].ring = options->rings[i];
	*result = sampler;
	return 0;
}

void sampler_destroy(struct sampler *sampler)
{
	if (!sampler)
		return;
	for (unsigned int i = 0; i < sampler->options.vcpus; i++)
		assert(!sampler->vcpus[i].clock);
	free(sampler);
}

/* Earlier expirations belong to the old frequency or to the pause: they are dropped. */
static int start_clock(struct vcpu_sampler *self, const struct vcpu *vcpu, unsigned int frequency)
{
	int error = sampling_clock_set_frequency(self->clock, frequency);

	if (error)
		return error;
	sampling_clock_consume(self->clock, vcpu->sample_expirations,
			       clock_ns(CLOCK_MONOTONIC_RAW));
	return sampling_clock_start(self->clock);
}

static int apply_frequency(struct sampler *sampler, struct vcpu_sampler *self,
			   const struct vcpu *vcpu)
{
	unsigned int frequency = atomic_load(&sampler->frequency);
	int error;

	if (frequency == self->frequency)
		return 0;
	error = frequency ? start_clock(self, vcpu, frequency) : sampling_clock_stop(self->clock);
	/* Also after an error, which would only recur at every kick. */
	self->frequency = frequency;
	return error;
}

int sampler_attach(struct sampler *sampler, struct vcpu *vcpu)
{
	struct vcpu_sampler *self = &sampler->vcpus[vcpu->index];
	struct sampling_clock *clock;
	int error;

	assert(vcpu->index < sampler->options.vcpus && !self->clock && vcpu_on_thread(vcpu));
	error = sampling_clock_create(&clock, sampler->options.clock, sampler->options.frequency);
	if (error)
		return error;
	if (sampling_clock_source(clock) == SAMPLING_SOURCE_CPU_TIMER &&
	    !atomic_flag_test_and_set(&sampler->warned))
		log_warning("%s; sampling by a timer instead, which also wakes halted vCPUs",
			    error_message());
	self->thread = gettid();
	self->clock = clock;
	self->frequency = 0;
	error = apply_frequency(sampler, self, vcpu);
	if (error) {
		sampling_clock_destroy(clock);
		self->clock = NULL;
		return error;
	}
	vcpu->sampler = self;
	return 0;
}

void sampler_kicked(struct sampler *sampler, struct vcpu *vcpu)
{
	struct vcpu_sampler *self = vcpu->sampler;

	if (!self ||
	    atomic_load_explicit(&sampler->frequency, memory_order_relaxed) == self->frequency)
		return;
	if (apply_frequency(sampler, self, vcpu))
		log_warning("vCPU %u keeps its sampling frequency: %s", vcpu->index,
			    error_message());
}

int sampler_set_frequency(struct sampler *sampler, unsigned int frequency)
{
	if (frequency > SAMPLING_FREQUENCY_MAX)
		return error_set(-EINVAL, "a sampling frequency of %u Hz is out of range: 0 to %u",
				 frequency, SAMPLING_FREQUENCY_MAX);
	atomic_store(&sampler->frequency, frequency);
	return 0;
}

void sampler_detach(struct sampler *sampler, struct vcpu *vcpu)
{
	struct vcpu_sampler *self = vcpu->sampler;

	if (!self)
		return;
	assert(self->thread == gettid());
	sampling_clock_stop(self->clock);
	sampling_clock_destroy(self->clock);
	self->clock = NULL;
	vcpu->sampler = NULL;
	ring_flush(self->ring);
}

void sampler_set_kernel(struct sampler *sampler, const struct guest_kernel *kernel)
{
	atomic_store_explicit(&sampler->kernel, kernel, memory_order_release);
}

/* A use that begins after the fence gets the current kernel. */
void sampler_wait_for_users(const struct sampler *sampler)
{
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int i = 0; i < sampler->options.vcpus; i++) {
		unsigned int turn = atomic_load(&sampler->vcpus[i].turns);

		while (turn & 1 && atomic_load(&sampler->vcpus[i].turns) == turn)
			sched_yield();
	}
}

bool sampler_registers(const struct sampler *sampler, unsigned int vcpu,
		       struct guest_registers *registers, uint64_t *time)
{
	if (vcpu >= sampler->options.vcpus)
		return false;
	*time = __atomic_load_n(&sampler->vcpus[vcpu].latest_time, __ATOMIC_ACQUIRE);
	return *time && snapshot_read(&sampler->vcpus[vcpu].latest, registers);
}

void sampler_discard_registers(struct sampler *sampler)
{
	for (unsigned int i = 0; i < sampler->options.vcpus; i++) {
		assert(!sampler->vcpus[i].clock);
		__atomic_store_n(&sampler->vcpus[i].latest_time, 0, __ATOMIC_RELEASE);
	}
}

void sampler_statistics(const struct sampler *sampler, struct sampler_statistics *statistics)
{
	*statistics = (struct sampler_statistics){ 0 };
	for (unsigned int i = 0; i < sampler->options.vcpus; i++) {
		const struct sampler_statistics *of = &sampler->vcpus[i].statistics;

		statistics->samples += __atomic_load_n(&of->samples, __ATOMIC_RELAXED);
		statistics->periods += __atomic_load_n(&of->periods, __ATOMIC_RELAXED);
		statistics->cost += __atomic_load_n(&of->cost, __ATOMIC_RELAXED);
	}
}
