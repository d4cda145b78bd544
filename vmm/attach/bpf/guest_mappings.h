/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: detects whether mappings of the VMM's memory have changed. KVM is notified before a page of
 * a memslot is unmapped (kernel: kvm_mmu_notifier_invalidate_*()) and counts that; memslots have a
 * generation. Addresses that were found are valid while neither changes, as they are for KVM itself
 * (kernel: mmu_invalidate_retry_gfn(), host_pfn_mapping_level()).
 */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_MAPPINGS_H
#define KVMSCOPE_ATTACH_BPF_GUEST_MAPPINGS_H

#include "vmm/attach/bpf/guest_memory.h"
#include "vmm/attach/bpf/kernel_types.h"
#include "vmm/attach/bpf/kernel_word.h"
#include "vmm/attach/bpf/verified_once.h"

#define KVM_WORD(at, field) kernel_word((at) + bpf_core_field_offset(struct kvm, field))

static __always_inline int can_know_mappings(void)
{
	return can_cast && bpf_core_field_exists(struct kvm, mmu_invalidate_seq) &&
	       bpf_core_field_exists(struct kvm, mmu_invalidate_in_progress) &&
	       bpf_core_field_exists(struct kvm_memslots, generation);
}

/* No invalidation is in progress or has happened, and the memslots are the published ones. */
static __always_inline int are_mapped(const struct mappings *known, const struct bpf_slots *slots)
{
	__u64 progress = KVM_WORD(known->kvm, mmu_invalidate_in_progress);
	__u64 memslots = KVM_WORD(known->kvm, memslots);

	return !progress && KVM_WORD(known->kvm, mmu_invalidate_seq) == known->invalidations &&
	       kernel_word(memslots + bpf_core_field_offset(struct kvm_memslots, generation)) ==
		       slots->generation_of_kvm;
}

VERIFIED_ONCE int renew_mappings(struct mappings *known, const struct bpf_slots *slots, __u64 kvm)
{
	if (!known || !slots)
		return 0;
	known->kvm = kvm;
	known->slots = slots->generation_of_kvm;
	known->invalidations = KVM_WORD(kvm, mmu_invalidate_seq);
	known->pgd = kernel_word(KVM_WORD(kvm, mm) + bpf_core_field_offset(struct mm_struct, pgd));
	known->state++;
	return 0;
}

/* For the vCPU's VM, until were_mapped() reports whether nothing changed. A VM created at the
 * address of a former one starts with the same numbers, but its vCPU has fewer exits. */
static __always_inline void open_mappings(struct scratch *scratch, struct kvm_vcpu *vcpu)
{
	__u64 kvm = kernel_word((__u64)vcpu + bpf_core_field_offset(struct kvm_vcpu, kvm)),
	      exits = 0;
	struct mappings *known = &scratch->space.mappings;
	const struct bpf_slots *slots = &scratch->vcpu.slots;
	int is_new;

	scratch->space.state = 0;
	if (!can_know_mappings())
		return;
	if (bpf_core_field_exists(struct kvm_vcpu, stat.exits))
		exits = kernel_word((__u64)vcpu +
				    bpf_core_field_offset(struct kvm_vcpu, stat.exits));
	is_new = known->kvm != kvm || exits < known->exits;
	known->exits = exits;
	if (is_new || known->slots != slots->generation_of_kvm || !are_mapped(known, slots))
		renew_mappings(known, slots, kvm);
	else
		scratch->space.state = known->state;
}

static __always_inline int were_mapped(const struct scratch *scratch)
{
	return !scratch->space.state || are_mapped(&scratch->space.mappings, &scratch->vcpu.slots);
}

#endif
