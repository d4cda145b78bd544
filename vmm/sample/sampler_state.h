/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the sampler: sampler.c sets it up, sampler_record.c records samples. */
#ifndef KVMSCOPE_SAMPLE_SAMPLER_STATE_H
#define KVMSCOPE_SAMPLE_SAMPLER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/sample/sampler.h"
#include "vmm/sample/vcpu_snapshot.h"

/* The value at the latest hit of an event on any vCPU. */
struct last_value {
	_Atomic uint64_t value;
	atomic_bool known;
};

/* State of one vCPU's thread for recording a sample; written by that thread only. */
struct vcpu_sampler {
	struct ring *ring;
	struct sampling_clock *clock; /* NULL while not attached */
	unsigned int frequency;       /* current one; 0: stopped */
	pid_t thread;
	atomic_uint turns; /* odd: it uses a kernel */
	struct snapshot latest;
	uint64_t latest_time; /* ns; written after `latest`; 0: none */
	struct sampler_statistics statistics;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	struct last_value last_values[SAMPLER_EVENTS_MAX]; /* per-CPU variables */
} __attribute__((aligned(64)));

struct sampler {
	struct sampler_options options;
	struct last_value last_values[SAMPLER_EVENTS_MAX];
	_Atomic(const struct guest_kernel *) kernel;
	atomic_uint frequency; /* requested; 0: paused */
	atomic_flag warned;
	struct vcpu_sampler vcpus[]; /* options.vcpus of them */
};

#endif
