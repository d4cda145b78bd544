/* SPDX-License-Identifier: Apache-2.0 */
/* KVM's own counters of a vCPU (KVM_GET_STATS_FD in Documentation/virt/kvm/api.rst, Linux 5.14). */
#ifndef KVMSCOPE_KVM_STATISTICS_H
#define KVMSCOPE_KVM_STATISTICS_H

#include <stdint.h>
#include <sys/types.h>

struct vcpu;

struct vcpu_statistic {
	int fd;       /* owned; -1 without such a counter */
	off_t offset; /* of the 64-bit value */
};

/*
 * Opens the counter NAME, such as "insn_emulation". Call it before the vCPU runs: the ioctl waits
 * for KVM_RUN to end. -ENOTSUP without a message if this KVM does not have the counter; STATISTIC
 * can be read and closed nevertheless.
 */
int vcpu_statistic_open(struct vcpu_statistic *statistic, const struct vcpu *vcpu,
			const char *name);

/* Current value, 0 without a counter. Any thread, also while the vCPU runs. */
uint64_t vcpu_statistic_read(const struct vcpu_statistic *statistic);

void vcpu_statistic_close(struct vcpu_statistic *statistic);

#endif
