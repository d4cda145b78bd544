/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a running vCPU did, as its host sees it: from KVM's counters and the
 * scheduler's. Neither stops it nor waits for it.
 *
 *	vcpu_load_open		before the vCPU runs
 *	vcpu_load_read, close	one other thread
 */
#ifndef KVMSCOPE_SAMPLE_VCPU_LOAD_H
#define KVMSCOPE_SAMPLE_VCPU_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/kvm/statistics.h"
#include "vmm/kvm/vcpu.h"

/* Sums since the vCPU's start, but for the time. */
struct vcpu_reading {
	uint64_t time; /* ns, CLOCK_MONOTONIC */
	uint64_t ran;  /* ns that its thread was on a CPU; a scheduler's tick behind */
	/*
	 * ns that its thread was ready to run and waited for a CPU (run_delay of
	 * kernel/sched/stats.h): what KVM tells the guest as its steal time.
	 */
	uint64_t waited;
	/*
	 * Exits that the guest made itself: those to KVM, without the ones for
	 * interrupts of the host. A kick comes as such, so sampling adds none. 0 without counters.
	 *
	 * One too many while the host has taken the CPU from the vCPU on such an interrupt: KVM
	 * counts the exit at once, but that it was for an interrupt only when the thread goes on
	 * (vcpu_enter_guest() and the exit handlers of arch/x86/kvm). The next reading may have
	 * less.
	 */
	uint64_t exits;
};

struct vcpu_load {
	const struct vcpu *vcpu;
	struct vcpu_statistic exits, interrupts;
	int scheduler; /* /proc/self/task/TID/schedstat (proc(5)); -1 while there is no thread */
};

/*
 * COUNT_EXITS: -ENOTSUP where this KVM does not count exits (before Linux
 * 5.14). -ENOTSUP where the scheduler keeps no account (CONFIG_SCHED_INFO).
 */
int vcpu_load_open(struct vcpu_load *load, const struct vcpu *vcpu, bool count_exits);

/* False while the vCPU has no thread, or no more. */
bool vcpu_load_read(struct vcpu_load *load, struct vcpu_reading *reading);

/* Works on a zeroed one with -1 as its descriptors. */
void vcpu_load_close(struct vcpu_load *load);

#endif
