/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler from the inside: sampler.c sets it up, sampler_take.c takes samples. */
#ifndef KVMSCOPE_SAMPLE_SAMPLER_STATE_H
#define KVMSCOPE_SAMPLE_SAMPLER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/sample/sampler.h"
#include "vmm/sample/vcpu_snapshot.h"

/* The value at the latest hit of an event, on whatever vCPU. */
struct last_value {
	_Atomic uint64_t value;
	atomic_bool known;
};

/* What one vCPU's thread needs to take a sample; written by that thread only. */
struct vcpu_sampler {
	struct ring *ring;
	struct sampling_clock *clock; /* NULL while not attached */
	unsigned int frequency;       /* that it ticks with; 0: it does not */
	pid_t thread;
	atomic_uint turns; /* odd: it uses a kernel */
	struct snapshot latest;
	uint64_t latest_time; /* ns; written behind it; 0: there is none */
	struct sampler_statistics statistics;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	struct last_value last_values[SAMPLER_EVENTS_MAX]; /* of what is per-CPU */
} __attribute__((aligned(64)));

struct sampler {
	struct sampler_options options;
	struct last_value last_values[SAMPLER_EVENTS_MAX];
	_Atomic(const struct guest_kernel *) kernel;
	atomic_uint frequency; /* as wanted; 0: paused */
	atomic_flag warned;
	struct vcpu_sampler vcpus[]; /* options.vcpus of them */
};

#endif
