/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare guest with a sampler: several vCPUs that all start at the same code, with one ring each,
 * and the threads that run them.
 */
#ifndef KVMSCOPE_TESTS_KVM_SAMPLED_GUEST_H
#define KVMSCOPE_TESTS_KVM_SAMPLED_GUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "shared/ring.h"
#include "tests/kvm/bare_guest.h"
#include "vmm/sample/sampler.h"
#include "vmm/sample/vm_view.h"

#define SAMPLED_CPUS_MAX 4

struct sampled_guest_options {
	const void *code;
	size_t size;
	int cpl;
	unsigned int cpus; /* 1 to SAMPLED_CPUS_MAX */
	enum sampling_clock_kind clock;
	unsigned int frequency; /* 0: without a sampler */
	uint64_t clock_address; /* the first vCPU's MSR_KVM_SYSTEM_TIME_NEW */
	bool paused;            /* until sampled_guest_set_frequency() */
	enum ring_mode mode;    /* of the rings */
};

struct sampled_guest {
	struct vm vm;
	struct vcpu_handlers handlers;
	struct vm_view view;
	struct sampler *sampler;
	struct ring *rings[SAMPLED_CPUS_MAX];
	struct sampled_cpu {
		struct sampled_guest *guest;
		struct vcpu *vcpu;
		pthread_t thread;
		uint64_t cpu_time; /* ns of its thread's CPU time, after it has ended */
		enum vcpu_end end;
		int error;
	} cpus[SAMPLED_CPUS_MAX];
	unsigned int cpu_count;
};

/*
 * Creates it and starts its threads. Returns 0 or a negative errno; on error there is nothing to
 * end.
 */
int sampled_guest_start(struct sampled_guest *guest, const struct sampled_guest_options *options);

/* Sleeps until the vCPUs together have used CPU_TIME ns. */
void sampled_guest_use(struct sampled_guest *guest, uint64_t cpu_time);

/* Sets the frequency of all vCPUs at once, as kvmscope run does; 0 pauses. */
int sampled_guest_set_frequency(struct sampled_guest *guest, unsigned int frequency);

/* Stops and joins the threads. Rings and statistics are final then. */
void sampled_guest_stop(struct sampled_guest *guest);
void sampled_guest_free(struct sampled_guest *guest);

#endif
