/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The parts of the kernel's types that are used. Their offsets are relocated when the program is
 * loaded (CO-RE), so one build serves all kernels, kvm_intel and kvm_amd. */
#ifndef KVMSCOPE_ATTACH_BPF_KERNEL_TYPES_H
#define KVMSCOPE_ATTACH_BPF_KERNEL_TYPES_H

#include <linux/types.h>

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL_TYPE;

struct pid_namespace {
	struct ns_common ns;
} KERNEL_TYPE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} KERNEL_TYPE;

struct hlist_node {
	struct hlist_node *next;
} KERNEL_TYPE;

struct hlist_head {
	struct hlist_node *first;
} KERNEL_TYPE;

struct pid {
	unsigned int level;
	struct hlist_head tasks[1]; /* or more */
	struct upid numbers[1];
} KERNEL_TYPE;

struct super_block {
	unsigned long s_magic;
} KERNEL_TYPE;

struct inode {
	struct super_block *i_sb;
} KERNEL_TYPE;

struct qstr {
	const unsigned char *name;
} KERNEL_TYPE;

struct dentry {
	struct qstr d_name;
} KERNEL_TYPE;

struct path {
	struct dentry *dentry;
} KERNEL_TYPE;

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
} KERNEL_TYPE;

struct kvm_memory_slot {
	struct hlist_node id_node[2];
	__u64 base_gfn;
	unsigned long npages;
	unsigned long userspace_addr;
} KERNEL_TYPE;

/* Layout since Linux 5.17. */
struct kvm_memslots {
	__u64 generation;
	struct hlist_head id_hash[128];
	int node_idx;
} KERNEL_TYPE;

struct mm_struct {
	void *pgd;
} KERNEL_TYPE;

/* With the names of invalidation fields since Linux 6.1. */
struct kvm {
	struct mm_struct *mm;
	struct kvm_memslots *memslots[1];
	unsigned long mmu_invalidate_seq;
	long mmu_invalidate_in_progress;
} KERNEL_TYPE;

/* Register numbers of arch/x86/include/asm/kvm_host.h. */
enum kvm_reg {
	VCPU_REGS_RAX,
	VCPU_REGS_RCX,
	VCPU_REGS_RDX,
	VCPU_REGS_RBX,
	VCPU_REGS_RSP,
	VCPU_REGS_RBP,
	VCPU_REGS_RSI,
	VCPU_REGS_RDI,
	VCPU_REGS_R8,
	VCPU_REGS_R9,
	VCPU_REGS_R10,
	VCPU_REGS_R11,
	VCPU_REGS_R12,
	VCPU_REGS_R13,
	VCPU_REGS_R14,
	VCPU_REGS_R15,
	VCPU_REGS_RIP,
	VCPU_REGS,
	VCPU_EXREG_CR3 = 19,
};

struct kvm_vcpu_arch {
	unsigned long regs[VCPU_REGS];
	__u32 regs_avail;
	unsigned long cr0, cr3, cr4;
	__u64 efer;
	__u8 handling_intr_from_guest; /* since Linux 5.17 */
	__u64 time;                    /* last value written to MSR_KVM_SYSTEM_TIME(_NEW) */
} KERNEL_TYPE;

/* Values of handling_intr_from_guest: what ended the guest's execution. */
enum kvm_intr_type { KVM_HANDLING_IRQ = 1, KVM_HANDLING_NMI };

struct kvm_vcpu_stat {
	__u64 exits;
} KERNEL_TYPE;

struct kvm_vcpu {
	struct kvm *kvm;
	int vcpu_id;
	struct pid *pid;
	struct kvm_vcpu_arch arch;
	struct kvm_vcpu_stat stat;
} KERNEL_TYPE;

/* kvm_amd: state that KVM has not copied from the VMCB is read there. */
struct vmcb_seg {
	__u16 attrib;
} KERNEL_TYPE;

struct vmcb_save_area {
	struct vmcb_seg cs;
	__u8 cpl;
	__u64 cr3;
} KERNEL_TYPE;

struct vmcb {
	struct vmcb_save_area save;
} KERNEL_TYPE;

struct kvm_vmcb_info {
	struct vmcb *ptr;
} KERNEL_TYPE;

/* The guest's VMCB, and the current one, which may be a nested guest's (since Linux 5.12). */
struct vcpu_svm {
	struct kvm_vcpu vcpu;
	struct vmcb *vmcb;
	struct kvm_vmcb_info vmcb01;
} KERNEL_TYPE;

/* kvm_intel */
struct loaded_vmcs {
	void *vmcs;
} KERNEL_TYPE;

struct vcpu_vmx {
	struct kvm_vcpu vcpu;
	struct loaded_vmcs vmcs01;
	struct loaded_vmcs *loaded_vmcs;
} KERNEL_TYPE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct preempt_notifier {
	struct hlist_node link;
} KERNEL_TYPE;

struct task_struct {
	unsigned int __state; /* since Linux 5.14 */
	int on_cpu;
	int pid;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct hlist_head preempt_notifiers;
} KERNEL_TYPE;

struct task_struct___before_5_14 {
	long state;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL_TYPE;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} KERNEL_TYPE;

#endif
