/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: finds a VMM's vCPUs and memslots in the kernel, with an iterator over its files. */
#ifndef KVMSCOPE_ATTACH_BPF_VCPU_LOOKUP_H
#define KVMSCOPE_ATTACH_BPF_VCPU_LOOKUP_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/kernel_types.h"

#define ANON_INODE_FS_MAGIC 0x09041934
#define BUCKETS             128
#define BUCKET_LONGEST      16
#define GFN_SHIFT           12

/* Smaller slots are skipped: the records of a VM have to fit into 32 KiB (kernel: bpf_iter.c,
 * bpf_seq_read()). */
__u64 slot_size_min;

/* The struct kvm to report; 0: all. */
__u64 vm_selected;

static __always_inline int is_selected(struct kvm *kvm)
{
	return !vm_selected || vm_selected == (__u64)kvm;
}

/* The memslots' generation: distinct while they change (kernel:
 * KVM_MEMSLOT_GEN_UPDATE_IN_PROGRESS), and another one afterwards. */
static __always_inline __u64 generation_of_slots(struct kvm *kvm)
{
	struct kvm_memslots *all = BPF_CORE_READ(kvm, memslots[0]);

	return bpf_core_field_exists(struct kvm_memslots, generation)
		       ? BPF_CORE_READ(all, generation)
		       : BPF_NO_GENERATION;
}

static __always_inline void emit_vm(struct seq_file *seq, struct kvm *kvm, __u32 fd)
{
	struct bpf_found found = { .type = BPF_FOUND_VM, .id = fd, .vm = (__u64)kvm };

	found.generation = generation_of_slots(kvm);
	bpf_seq_write(seq, &found, sizeof(found));
}

static __always_inline void emit_slot(struct seq_file *seq, struct kvm *kvm,
				      struct kvm_memory_slot *slot)
{
	struct bpf_found found = { .type = BPF_FOUND_SLOT };

	found.gpa = BPF_CORE_READ(slot, base_gfn) << GFN_SHIFT;
	found.size = (__u64)BPF_CORE_READ(slot, npages) << GFN_SHIFT;
	found.hva = BPF_CORE_READ(slot, userspace_addr);
	found.generation = generation_of_slots(kvm);
	if (found.size >= slot_size_min)
		bpf_seq_write(seq, &found, sizeof(found));
}

/* A walk by bpf_loop(), of which the verifier follows one iteration. */
struct slots {
	struct seq_file *seq;
	struct kvm *kvm;
	__u64 heads;  /* address of the buckets */
	__u64 offset; /* of the node in a slot */
};

static long emit_bucket(__u32 bucket, void *context)
{
	const struct slots *slots = context;
	struct hlist_node *node = 0;

	bpf_probe_read_kernel(&node, sizeof(node), (void *)(slots->heads + bucket * sizeof(node)));
	for (int i = 0; i < BUCKET_LONGEST && node; i++) {
		emit_slot(slots->seq, slots->kvm, (void *)((__u64)node - slots->offset));
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

/* Each slot is in two sets of lists; node_idx selects the active one. */
static __always_inline void emit_slots(struct seq_file *seq, struct kvm *kvm)
{
	struct kvm_memslots *all = BPF_CORE_READ(kvm, memslots[0]);
	struct slots slots = { .seq = seq, .kvm = kvm };

	slots.heads = (__u64)all + bpf_core_field_offset(struct kvm_memslots, id_hash);
	slots.offset = bpf_core_field_offset(struct kvm_memory_slot, id_node) +
		       (BPF_CORE_READ(all, node_idx) & 1) * 2 * sizeof(void *);
	bpf_loop(BUCKETS, emit_bucket, &slots, 0);
}

/*
 * The thread that runs VCPU, in the initial PID namespace or, with OWN, in its own; 0: the vCPU has
 * not run yet, or its thread has exited. KVM keeps the number, which may be another thread's by
 * now.
 */
static __always_inline __u32 thread_of(struct kvm_vcpu *vcpu, int own)
{
	struct pid *pid = BPF_CORE_READ(vcpu, pid);
	__u64 number = (__u64)pid + bpf_core_field_offset(struct pid, numbers) +
		       bpf_core_field_offset(struct upid, nr);
	__u32 tid = 0;

	if (!BPF_CORE_READ(pid, tasks[0].first))
		return 0;
	if (own)
		number += (__u64)BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(&tid, sizeof(tid), (void *)number);
	return tid;
}

static __always_inline void emit_vcpu(struct seq_file *seq, struct kvm_vcpu *vcpu)
{
	struct kvm *kvm = BPF_CORE_READ(vcpu, kvm);
	struct bpf_found found = { .type = BPF_FOUND_VCPU, .vcpu = (__u64)vcpu, .vm = (__u64)kvm };

	if (!is_selected(kvm))
		return;
	found.id = BPF_CORE_READ(vcpu, vcpu_id);
	found.pid = (__u64)BPF_CORE_READ(vcpu, pid);
	found.tid = thread_of(vcpu, 0);
	found.inner_tid = thread_of(vcpu, 1);
	bpf_seq_write(seq, &found, sizeof(found));
}

/* KVM's files are anonymous inodes with a name: virt/kvm/kvm_main.c. */
SEC("iter/task_file")
int find_vms(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	union {
		char text[16];
		__u64 word;
	} name = { "" }, vcpu = { "kvm-vcpu" }, vm = { "kvm-vm" };

	if (!file || BPF_CORE_READ(file, f_inode, i_sb, s_magic) != ANON_INODE_FS_MAGIC)
		return 0;
	bpf_probe_read_kernel_str(name.text, sizeof(name.text),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	if (name.word == vcpu.word && name.text[8] == ':')
		emit_vcpu(ctx->meta->seq, file->private_data);
	if (name.word != vm.word)
		return 0;
	emit_vm(ctx->meta->seq, file->private_data, ctx->fd);
	if (is_selected(file->private_data) && bpf_core_field_exists(struct kvm_memslots, id_hash))
		emit_slots(ctx->meta->seq, file->private_data);
	return 0;
}

#endif
