/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's CPUID: the features that this KVM supports, without those that are removed on
 * purpose. */
#ifndef KVMSCOPE_KVM_CPUID_H
#define KVMSCOPE_KVM_CPUID_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* KVM_MAX_CPUID_ENTRIES since Linux 5.10 (arch/x86/include/asm/kvm_host.h) */
#define CPUID_ENTRIES_MAX 256

struct cpuid_table {
	struct kvm_cpuid2 header; /* nent counts entries[] */
	struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
};

struct cpuid_options {
	unsigned int cpus;    /* of the VM, 1 to 64 */
	unsigned int apic_id; /* of this vCPU */
	bool tsc_deadline;    /* KVM_CAP_TSC_DEADLINE_TIMER */
	bool kernel_pmu;      /* KVM emulates the PMU: its PMU leaves stay */
	bool nested;          /* nested virtualization: VMX and SVM stay */
};

/* Reads KVM_GET_SUPPORTED_CPUID of KVM_FD (/dev/kvm) into TABLE. */
int cpuid_supported(int kvm_fd, struct cpuid_table *table);

/* Changes TABLE, as reported by KVM, into the table of vCPU OPTIONS->apic_id. Pure; cpuid.c
 * gives the reason for each changed leaf. */
void cpuid_filter(struct cpuid_table *table, const struct cpuid_options *options);

/* True if the vendor string in leaf 0 is NAME, of 12 characters. */
bool cpuid_vendor_is(struct cpuid_table *table, const char *name);

/* True if TABLE has VMX or SVM. */
bool cpuid_can_nest(struct cpuid_table *table);

/* The entry of FUNCTION and INDEX, or NULL. */
struct kvm_cpuid_entry2 *cpuid_find(struct cpuid_table *table, uint32_t function, uint32_t index);

/* The same, but adds an all-zero entry if there is none. NULL if the table is full. */
struct kvm_cpuid_entry2 *cpuid_add(struct cpuid_table *table, uint32_t function, uint32_t index);

#endif
