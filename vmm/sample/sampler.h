/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler: when a vCPU's clock says so, its registers and callchain go
 * into its ring as a struct sample. It knows nothing of who reads the rings.
 *
 *	attach, detach, take, kicked,
 *	take_hit, tell_event,
 *	tell_guest_lost, task,
 *	kernel_runs			the vCPU's thread
 *	everything else			any thread between create and destroy
 *
 * sampler_take() takes no lock and allocates nothing. Its only system calls are
 * the wake-up of the ring's reader, once per watermark (some hundred samples),
 * and what sampling_clock_take() needs where a clock has missed periods.
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
	bool callchains;        /* else a sample has its RIP only */
	/*
	 * ns behind a sample's begin at which its callchain is cut; 0: never. What is looked up
	 * beside it, the task's cgroup and mappings, ends at three quarters of that: 48 us of 64,
	 * and some reads more.
	 */
	uint64_t stack_time;
	bool paused; /* takes no samples before sampler_set_frequency() */
};

struct sampler_statistics {
	uint64_t samples; /* taken, whether or not the ring had room */
	uint64_t periods; /* of the clock that they stand for; more than samples where signals were
			     merged */
	uint64_t cost;    /* ns that taking them cost, without leaving and entering the guest */
};

/* -EINVAL for a bad frequency, -ENOMEM. The options are copied, what they point to is not. */
int sampler_create(struct sampler **sampler, const struct sampler_options *options);

/* All vCPUs must be detached. NULL is a no-op. */
void sampler_destroy(struct sampler *sampler);

/*
 * Makes and starts VCPU's clock, before its first vcpu_run(); the errors of
 * sampling_clock_create(). Warns once where CPU time can be had only by a timer.
 */
int sampler_attach(struct sampler *sampler, struct vcpu *vcpu);

/* Stops the clock and publishes what is in the ring. A no-op on a vCPU that is not attached. */
void sampler_detach(struct sampler *sampler, struct vcpu *vcpu);

/* The `sample` handler's work: see struct vcpu_handlers. Does nothing if no period has passed. */
void sampler_take(struct sampler *sampler, struct vcpu *vcpu);

/* A watch of the guest was hit. */
struct sampler_hit {
	uint16_t event; /* 1 to SAMPLER_EVENTS_MAX - 1 */
	uint8_t length; /* bytes of its value; 0: it is code */
	bool per_cpu;   /* each vCPU has its own at another address */
	uint64_t address;
	uint64_t period; /* hits that the sample stands for */
	uint64_t hits;   /* on the vCPU so far, with it */
};

/* A sample of the hit, with the registers, the value that is there now and the one of the hit
 * before; also while paused. */
void sampler_take_hit(struct sampler *sampler, struct vcpu *vcpu, const struct sampler_hit *hit);

/* Tells in the stream that the event gives no samples of VCPU from now on, or does so again. */
void sampler_tell_event(struct sampler *sampler, struct vcpu *vcpu, uint16_t event, bool stopped);

/* Tells in the stream that COUNT breakpoints of the guest's own do not work for it on VCPU from now
 * on. */
void sampler_tell_guest_lost(struct sampler *sampler, struct vcpu *vcpu, unsigned int count);

/* The guest's task on the stopped VCPU: see struct sample. */
void sampler_task(const struct sampler *sampler, struct vcpu *vcpu, struct guest_task *task);

/*
 * Does the stopped VCPU run the kernel that was set last? If not, its registers are shown
 * by sampler_registers(), so that what it runs instead is looked for.
 */
bool sampler_kernel_runs(struct sampler *sampler, struct vcpu *vcpu);

/*
 * Another frequency in Hz for all vCPUs, or 0: no samples until the next call.
 * Each vCPU takes it over when it is next kicked: kick them all (vcpu_kick())
 * behind this call for it to hold at once. -EINVAL, with nothing changed, for
 * more than SAMPLING_FREQUENCY_MAX.
 */
int sampler_set_frequency(struct sampler *sampler, unsigned int frequency);

/* The `kicked` handler's work: takes a new frequency over, if there is one. See struct
 * vcpu_handlers. */
void sampler_kicked(struct sampler *sampler, struct vcpu *vcpu);

/*
 * Callchains are walked with KERNEL's unwinder and tasks named by its layout
 * from now on (NULL: by frame pointers only, and not named), where it runs: a
 * sample that was taken in another one is SAMPLE_OTHER_KERNEL. It stays valid
 * until every vCPU has taken a sample whose time is later than a newer one was
 * set, or sampler_wait_for_users(), and the last until the vCPUs are detached.
 */
void sampler_set_kernel(struct sampler *sampler, const struct guest_kernel *kernel);

/*
 * Comes back when no vCPU uses a kernel that was set before the last one any more, without waiting
 * for their samples: as long as a sample takes.
 */
void sampler_wait_for_users(const struct sampler *sampler);

/* The registers at VCPU's latest sample, and its time or an earlier one; false if there was none
 * yet. */
bool sampler_registers(const struct sampler *sampler, unsigned int vcpu,
		       struct guest_registers *registers, uint64_t *time);

/* The guest is started anew: no registers are known. All vCPUs must be detached. */
void sampler_forget_registers(struct sampler *sampler);

/* Sums over all vCPUs; exact once they are detached. */
void sampler_statistics(const struct sampler *sampler, struct sampler_statistics *statistics);

#endif
