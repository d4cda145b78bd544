/* SPDX-License-Identifier: Apache-2.0 */
/* KVM's own counters of a vCPU (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD, Linux 5.14). */
#ifndef KVMSCOPE_KVM_STATISTICS_H
#define KVMSCOPE_KVM_STATISTICS_H

#include <stdint.h>
#include <sys/types.h>

struct vcpu;

struct vcpu_statistic {
	int fd;       /* owned; -1 where there is no such counter */
	off_t offset; /* of its 64-bit value */
};

/*
 * Finds the counter NAME, as "insn_emulation". Before the vCPU runs: the ioctl
 * would wait for KVM_RUN to end. -ENOTSUP without a message where this KVM
 * does not have it; STATISTIC can then be read and closed all the same.
 */
int vcpu_statistic_open(struct vcpu_statistic *statistic, const struct vcpu *vcpu,
			const char *name);

/* Its value now, 0 if there is none. Any thread, also while the vCPU runs. */
uint64_t vcpu_statistic_read(const struct vcpu_statistic *statistic);

void vcpu_statistic_close(struct vcpu_statistic *statistic);

#endif
