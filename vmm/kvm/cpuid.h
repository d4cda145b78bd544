/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's CPUID shows: what this KVM can do, less what is changed on purpose. */
#ifndef KVMSCOPE_KVM_CPUID_H
#define KVMSCOPE_KVM_CPUID_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* KVM_MAX_CPUID_ENTRIES of kernels since 5.10 (arch/x86/include/asm/kvm_host.h). */
#define CPUID_ENTRIES_MAX 256

struct cpuid_table {
	struct kvm_cpuid2 header; /* nent counts entries[] */
	struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
};

struct cpuid_options {
	unsigned int cpus;    /* of the VM, 1 to 64 */
	unsigned int apic_id; /* of this vCPU */
	bool tsc_deadline;    /* KVM_CAP_TSC_DEADLINE_TIMER */
	bool kernel_pmu;      /* the PMU is KVM's, so what KVM says of it stays */
	bool nested;          /* the guest may run guests of its own: VMX and SVM stay */
};

/* Reads KVM_GET_SUPPORTED_CPUID of /dev/kvm (KVM_FD) into TABLE. */
int cpuid_supported(int kvm_fd, struct cpuid_table *table);

/*
 * Changes TABLE, as KVM reported it, into what vCPU OPTIONS->apic_id of our
 * machine shows. Pure; cpuid.c gives the reason for each changed leaf.
 */
void cpuid_filter(struct cpuid_table *table, const struct cpuid_options *options);

/* Does TABLE show VMX or SVM? */
bool cpuid_can_nest(struct cpuid_table *table);

/* The entry of FUNCTION and INDEX, or NULL. */
struct kvm_cpuid_entry2 *cpuid_find(struct cpuid_table *table, uint32_t function, uint32_t index);

/* The same, made with all registers 0 where there was none; NULL if the table is full. */
struct kvm_cpuid_entry2 *cpuid_add(struct cpuid_table *table, uint32_t function, uint32_t index);

#endif
