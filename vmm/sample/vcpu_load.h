/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running vCPU's activity as seen by the host, from KVM's and the scheduler's counters. Reading
 * neither stops the vCPU nor waits for it.
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

/* Sums since the vCPU's start, except for the time. */
struct vcpu_reading {
	uint64_t time; /* ns, CLOCK_MONOTONIC */
	uint64_t ran;  /* ns on a CPU; up to one scheduler tick old */
	/* ns for which its thread was runnable and waited for a CPU (run_delay of
	 * kernel/sched/stats.h): KVM reports this to the guest as steal time. */
	uint64_t waited;
	/*
	 * Exits caused by the guest: exits to KVM without those for host interrupts. A kick is such
	 * an interrupt, so sampling adds none. 0 without counters. One too high while the thread is
	 * preempted after such an interrupt: KVM counts the exit at once, but the interrupt only
	 * when the thread continues (vcpu_enter_guest() and the exit handlers of arch/x86/kvm). The
	 * next reading may be lower.
	 */
	uint64_t exits;
};

struct vcpu_load {
	const struct vcpu *vcpu;
	struct vcpu_statistic exits, interrupts;
	int scheduler; /* /proc/self/task/TID/schedstat (proc(5)); -1 without a thread */
};

/* COUNT_EXITS: -ENOTSUP if this KVM does not count exits (before Linux 5.14). -ENOTSUP if the
 * scheduler has no statistics (CONFIG_SCHED_INFO). */
int vcpu_load_open(struct vcpu_load *load, const struct vcpu *vcpu, bool count_exits);

/* False while the vCPU has no thread. */
bool vcpu_load_read(struct vcpu_load *load, struct vcpu_reading *reading);

/* Works on a zeroed struct with -1 as its descriptors. */
void vcpu_load_close(struct vcpu_load *load);

#endif
