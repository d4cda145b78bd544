/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler: when a vCPU's clock expires, writes its registers and call chain to its ring as a
 * struct sample. Independent of the rings' readers.
 *
 *	attach, detach, record, kicked,
 *	record_hit, report_event,
 *	report_guest_lost, task,
 *	kernel_runs			the vCPU's thread
 *	everything else			any thread between create and destroy
 *
 * sampler_record() takes no lock and allocates nothing. Its only system calls are the wake-up of
 * the ring's reader, once per watermark (some hundred samples), and what sampling_clock_consume()
 * needs after missed periods.
 */
#ifndef KVMSCOPE_SAMPLE_SAMPLER_H
#define KVMSCOPE_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/ring.h"
#include "shared/sample_record.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/unwind/unwind.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/sample/sample_clock.h"

struct guest_task;
struct sampler;

/* The clock, and watches. */
#define SAMPLER_EVENTS_MAX 65

struct sampler_options {
	struct ring *const *rings; /* one for each vCPU, in order; written only by the sampler until
				      it is destroyed */
	unsigned int vcpus;        /* 1 to VM_CPUS_MAX */
	const struct guest_view *view; /* of the VM; outlives the sampler */
	enum sampling_clock_kind clock;
	unsigned int frequency; /* Hz, 1 to SAMPLING_FREQUENCY_MAX */
	bool callchains;        /* false: a sample has its RIP only */
	/*
	 * ns after a sample's start at which its call chain is truncated; 0: never. Other lookups,
	 * the task's cgroup and mappings, end at three quarters of it: 48 us of 64, and some reads
	 * more.
	 */
	uint64_t stack_time;
	bool paused; /* no samples before sampler_set_frequency() */
};

struct sampler_statistics {
	uint64_t samples; /* recorded, even if the ring had no room */
	uint64_t periods; /* periods of the clock that they represent: more than samples if signals
			     were merged */
	uint64_t cost;    /* ns spent on them, without leaving and entering the guest */
};

/* -EINVAL for a bad frequency, -ENOMEM. Copies the options, but not their targets. */
int sampler_create(struct sampler **sampler, const struct sampler_options *options);

/* All vCPUs must be detached. NULL is a no-op. */
void sampler_destroy(struct sampler *sampler);

/* Creates and starts VCPU's clock, before its first vcpu_run(). The errors of
 * sampling_clock_create(). Warns once if CPU time is only available through a timer. */
int sampler_attach(struct sampler *sampler, struct vcpu *vcpu);

/* Stops the clock and publishes the ring's contents. A no-op on a vCPU that is not attached. */
void sampler_detach(struct sampler *sampler, struct vcpu *vcpu);

/* For the `sample` handler of struct vcpu_handlers. Does nothing if no period has passed. */
void sampler_record(struct sampler *sampler, struct vcpu *vcpu);

/* A hit of a watch. */
struct sampler_hit {
	uint16_t event; /* 1 to SAMPLER_EVENTS_MAX - 1 */
	uint8_t length; /* bytes of its value; 0: code */
	bool per_cpu;   /* at another address on each vCPU */
	uint64_t address;
	uint64_t period; /* hits that the sample represents */
	uint64_t hits;   /* of the watch on this vCPU, so far */
};

/* Records a sample of the hit with the registers, the current value and the value at the
 * previous hit; also while paused. */
void sampler_record_hit(struct sampler *sampler, struct vcpu *vcpu, const struct sampler_hit *hit);

/* Records that the event gives no samples of VCPU from now on, or does so again. */
void sampler_report_event(struct sampler *sampler, struct vcpu *vcpu, uint16_t event, bool stopped);

/* Records that COUNT breakpoints of the guest do not work for it on VCPU from now on. */
void sampler_report_guest_lost(struct sampler *sampler, struct vcpu *vcpu, unsigned int count);

/* The guest's current task on the stopped VCPU: see struct sample. */
void sampler_task(const struct sampler *sampler, struct vcpu *vcpu, struct guest_task *task);

/* True if the stopped VCPU runs the kernel set last. Otherwise sampler_registers() gets its
 * registers, so that the new kernel can be found. */
bool sampler_kernel_runs(struct sampler *sampler, struct vcpu *vcpu);

/* Sets the frequency of all vCPUs in Hz; 0: no samples until the next call. Takes effect at each
 * vCPU's next kick: call vcpu_kick() for all afterwards. -EINVAL above SAMPLING_FREQUENCY_MAX. */
int sampler_set_frequency(struct sampler *sampler, unsigned int frequency);

/* For the `kicked` handler of struct vcpu_handlers: applies a new frequency. */
void sampler_kicked(struct sampler *sampler, struct vcpu *vcpu);

/*
 * Uses KERNEL's unwinder for call chains and its layout for tasks from now on, while it is running
 * (NULL: frame pointers only, and no tasks). A sample of another kernel gets SAMPLE_OTHER_KERNEL.
 * KERNEL must stay valid until every vCPU has recorded a sample later than the call that set a
 * newer one, or until sampler_wait_for_users(); the last one until the vCPUs are detached.
 */
void sampler_set_kernel(struct sampler *sampler, const struct guest_kernel *kernel);

/* Returns when no vCPU uses a kernel set before the last one. Waits as long as one sample takes,
 * but not for further samples. */
void sampler_wait_for_users(const struct sampler *sampler);

/* The registers at VCPU's latest sample, and its time or an earlier one; false before the first. */
bool sampler_registers(const struct sampler *sampler, unsigned int vcpu,
		       struct guest_registers *registers, uint64_t *time);

/* The guest restarts: discards all registers. All vCPUs must be detached. */
void sampler_discard_registers(struct sampler *sampler);

/* Sums over all vCPUs; exact once they are detached. */
void sampler_statistics(const struct sampler *sampler, struct sampler_statistics *statistics);

#endif
