// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * BPF: finds a VMM's vCPUs and memslots in the kernel, and samples them. The
 * perf event's program runs in an interrupt that the vCPU's own thread took, so
 * the guest stands still, its registers are where KVM has just put them, and its memory is that of
 * the current process.
 *
 * Only what is used of the kernel's types is declared; where it lies is
 * relocated when the program is loaded (CO-RE), so one build serves all kernels and kvm_intel as well as
 * kvm_amd.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "vmm/attach/bpf/guest_sample.h"

char LICENSE[] SEC("license") = "GPL";

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct upid {
	int nr;
} KERNEL_TYPE;

struct pid {
	unsigned int level;
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

struct hlist_node {
	struct hlist_node *next;
} KERNEL_TYPE;

struct hlist_head {
	struct hlist_node *first;
} KERNEL_TYPE;

struct kvm_memory_slot {
	struct hlist_node id_node[2];
	__u64 base_gfn;
	unsigned long npages;
	unsigned long userspace_addr;
} KERNEL_TYPE;

/* From Linux 5.17 on. */
struct kvm_memslots {
	struct hlist_head id_hash[128];
	int node_idx;
} KERNEL_TYPE;

struct kvm {
	struct kvm_memslots *memslots[1];
} KERNEL_TYPE;

struct kvm_vcpu_arch {
	unsigned long regs[BPF_REGISTERS];
	__u32 regs_avail;
	unsigned long cr0, cr3, cr4;
	__u64 efer;
	__u8 handling_intr_from_guest; /* from Linux 5.17 on */
} KERNEL_TYPE;

/* What handling_intr_from_guest says that KVM left the guest for. */
enum kvm_intr_type { KVM_HANDLING_IRQ = 1, KVM_HANDLING_NMI };

struct kvm_vcpu {
	struct kvm *kvm;
	int vcpu_id;
	struct pid *pid;
	struct kvm_vcpu_arch arch;
} KERNEL_TYPE;

enum kvm_reg { VCPU_EXREG_CR3 = 19 };

/* kvm_amd's; what KVM has not copied out of the VMCB is read there. */
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

/* What the guest itself runs by, and what is run by now, which can be a guest of its own (from Linux 5.12
 * on). */
struct vcpu_svm {
	struct kvm_vcpu vcpu;
	struct vmcb *vmcb;
	struct kvm_vmcb_info vmcb01;
} KERNEL_TYPE;

/* kvm_intel's. */
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

struct task_struct;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} KERNEL_TYPE;

#define ANON_INODE_FS_MAGIC 0x09041934
#define BUCKETS             128
#define BUCKET_LONGEST      16
#define PAGE_SHIFT          12
#define VMCB_CODE_64        (1u << 9)    /* CS.L: APM vol. 2, 4.8.1 and 15.5.1 */
#define USER_FRAME_MAX      (1ull << 20) /* bytes, as the other unwinders have it */
#define KERNEL_STACK_SIZE                                                                                    \
	(16u << 10) /* arch/x86/include/asm/page_64_types.h, THREAD_SIZE and IRQ_STACK_SIZE */

/* The loader's. */
const volatile __u32 is_amd; /* vCPUs are of kvm_amd */

/* Smaller slots are not told: what is told of a VM has to fit into 32 KiB (kernel: bpf_iter.c,
 * bpf_seq_read()). */
__u64 slot_size_min;

/* Of each VM: its vCPUs by their ids, whose tasks they run, its memslots, and the ring that its samples go
 * to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_INNER_MAP); /* there may be more of them than here */
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct bpf_vcpu));
		});
} vcpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_INNER_MAP);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct bpf_cpu));
		});
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct bpf_slots));
		});
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 4096); /* or whatever the loader makes */
		});
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_whole_sample);
} scratch SEC(".maps");

/* An event on each CPU, which nobody reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* or what the loader sets */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} rip_events SEC(".maps");

/* Finding. */

static __always_inline void tell_slot(struct seq_file *seq, struct kvm_memory_slot *slot)
{
	struct bpf_found found = { .type = BPF_FOUND_SLOT };

	found.gpa = BPF_CORE_READ(slot, base_gfn) << PAGE_SHIFT;
	found.size = (__u64)BPF_CORE_READ(slot, npages) << PAGE_SHIFT;
	found.hva = BPF_CORE_READ(slot, userspace_addr);
	if (found.size >= slot_size_min)
		bpf_seq_write(seq, &found, sizeof(found));
}

/* Each slot stands in one of two lists of its kind: which one is in use, the slots tell. */
static __always_inline void tell_slots(struct seq_file *seq, struct kvm *kvm)
{
	struct kvm_memslots *all = BPF_CORE_READ(kvm, memslots[0]);
	__u64 heads = (__u64)all + bpf_core_field_offset(struct kvm_memslots, id_hash);
	__u64 offset = bpf_core_field_offset(struct kvm_memory_slot, id_node) +
		       (BPF_CORE_READ(all, node_idx) & 1) * 2 * sizeof(void *);

	for (int bucket = 0; bucket < BUCKETS; bucket++) {
		struct hlist_node *node = 0;

		bpf_probe_read_kernel(&node, sizeof(node), (void *)(heads + bucket * sizeof(node)));
		for (int i = 0; i < BUCKET_LONGEST && node; i++) {
			tell_slot(seq, (void *)((__u64)node - offset));
			node = BPF_CORE_READ(node, next);
		}
	}
}

/* The thread that runs VCPU, in the first PID namespace or, with OWN, in its own; 0: it has not run yet. */
static __always_inline __u32 thread_of(struct kvm_vcpu *vcpu, int own)
{
	struct pid *pid = BPF_CORE_READ(vcpu, pid);
	__u64 number = (__u64)pid + bpf_core_field_offset(struct pid, numbers) +
		       bpf_core_field_offset(struct upid, nr);
	__u32 tid = 0;

	if (own && pid)
		number += (__u64)BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
	if (pid)
		bpf_probe_read_kernel(&tid, sizeof(tid), (void *)number);
	return tid;
}

static __always_inline void tell_vcpu(struct seq_file *seq, struct kvm_vcpu *vcpu)
{
	struct bpf_found found = { .type = BPF_FOUND_VCPU, .vcpu = (__u64)vcpu };

	found.id = BPF_CORE_READ(vcpu, vcpu_id);
	found.tid = thread_of(vcpu, 0);
	found.inner_tid = thread_of(vcpu, 1);
	bpf_seq_write(seq, &found, sizeof(found));
}

/* Files of KVM have no place in any file system, and a name: virt/kvm/kvm_main.c. */
SEC("iter/task_file")
int find(struct bpf_iter__task_file *ctx)
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
		tell_vcpu(ctx->meta->seq, file->private_data);
	else if (name.word == vm.word && bpf_core_field_exists(struct kvm_memslots, id_hash))
		tell_slots(ctx->meta->seq, file->private_data);
	return 0;
}

/* Guest memory. */

#define PTE_PRESENT 1ull
#define PTE_LARGE   (1ull << 7)
#define PTE_ADDRESS 0x000ffffffffff000ull
#define CR4_LA57    (1ull << 12)

static __always_inline __u64 hva_of(const struct bpf_slots *all, __u64 gpa)
{
	for (__u32 i = 0; i < BPF_SLOTS_MAX; i++) {
		if (i >= all->count)
			return 0;
		if (gpa - all->slot[i].gpa < all->slot[i].size)
			return all->slot[i].hva + (gpa - all->slot[i].gpa);
	}
	return 0;
}

/* One level of the tables: *TABLE becomes what its entry says; the bits of a page if it is one, 0 if not, or
 * -1. */
static __noinline int walk_level(const struct bpf_slots *all, __u64 *table, __u64 gva, __u32 shift)
{
	__u64 entry = 0, hva;

	if (!all || !table)
		return -1;
	hva = hva_of(all, (*table & PTE_ADDRESS) + ((gva >> (shift & 63)) & 511) * 8);
	if (!hva || bpf_probe_read_user(&entry, sizeof(entry), (void *)hva) || !(entry & PTE_PRESENT))
		return -1;
	*table = entry;
	return shift == PAGE_SHIFT || (shift <= 30 && entry & PTE_LARGE) ? (int)shift : 0;
}

#define NO_PAGE (~0ull)

/* The GPA of the page that GVA is in; NO_PAGE: none. SDM vol. 3A 4.5. */
static __always_inline __u64 gpa_of(const struct bpf_slots *all, __u64 cr3, __u32 levels, __u64 gva)
{
	__u64 table = cr3;

	for (__u32 level = 0; level < 5; level++) {
		__u32 shift = PAGE_SHIFT + 9 * (4 - level);
		int bits;

		if (level + levels < 5)
			continue;
		bits = walk_level(all, &table, gva, shift);
		if (bits < 0)
			return NO_PAGE;
		if (bits) {
			__u64 mask = (1ull << (bits & 63)) - 1;

			return ((table & PTE_ADDRESS & ~mask) | (gva & mask)) & ~0xfffull;
		}
	}
	return NO_PAGE;
}

/* Its HVA; 0: none. */
static __always_inline __u64 page_of(const struct bpf_slots *all, __u64 cr3, __u32 levels, __u64 gva)
{
	return hva_of(all, gpa_of(all, cr3, levels, gva));
}

/* A stack, and the page of it that was used last. */
struct stack {
	__u64 cr3, frame;
	__u64 page, page_hva;
	__u32 levels;
};

/* SIZE bytes that are in one page. */
static __always_inline int read_stack(const struct bpf_slots *all, struct stack *stack, __u64 gva, void *to,
				      __u32 size)
{
	if (!stack->page_hva || stack->page != gva >> PAGE_SHIFT) {
		stack->page = gva >> PAGE_SHIFT;
		stack->page_hva = page_of(all, stack->cr3, stack->levels, gva);
	}
	return stack->page_hva && !bpf_probe_read_user(to, size, (void *)(stack->page_hva + (gva & 0xfff)));
}

static __always_inline int read_word(const struct bpf_slots *all, struct stack *stack, __u64 gva, __u64 *word)
{
	return read_stack(all, stack, gva, word, sizeof(*word));
}

/* A frame's two words: the caller's RBP, and where it goes on. By one read, where they are in one page. */
static __always_inline int read_frame(const struct bpf_slots *all, struct stack *stack, __u64 words[2])
{
	__u64 frame = stack->frame;

	if ((frame & 0xfff) <= 4096 - 16)
		return read_stack(all, stack, frame, words, 16);
	return read_word(all, stack, frame, &words[0]) && read_word(all, stack, frame + 8, &words[1]);
}

struct chain_walk {
	struct stack stack;
	__u64 below; /* where the frame can begin */
	const struct bpf_slots *slots;
	struct bpf_whole_sample *sample;
};

/* Stacks grow down: the caller's frame lies higher, within reach; else RBP is no frame pointer but any
 * number. */
static __always_inline int is_frame(const struct chain_walk *walk)
{
	__u64 frame = walk->stack.frame, user_end = 1ull << (walk->stack.levels == 5 ? 56 : 47);

	return !(frame & 7) && frame < user_end && frame >= walk->below &&
	       frame - walk->below <= USER_FRAME_MAX;
}

/*
 * The words of 32-bit code's frame, read as one: the return address is the upper half of NEXT. Its stack is
 * below 4 GiB, where the frames of 64-bit code lead no higher. kvm_intel has CS in the VMCS alone.
 */
static __always_inline int is_narrow(const struct chain_walk *walk, __u64 next)
{
	return !(walk->stack.frame >> 32) && next >> 32;
}

/* A frame: the caller's RBP, and above it where it goes on. The outermost has RBP 0. */
static long step(__u32 index, void *context)
{
	struct chain_walk *walk = context;
	struct bpf_whole_sample *sample = walk->sample;
	__u64 frame = walk->stack.frame, words[2] = { 0 };

	if (!frame || index >= BPF_CHAIN_MAX)
		return 1;
	if (!is_frame(walk) || !read_frame(walk->slots, &walk->stack, words) || !words[1] ||
	    is_narrow(walk, words[0]) || words[1] >> (walk->stack.levels == 5 ? 56 : 47)) {
		sample->head.flags |= BPF_CHAIN_CUT;
		return 1;
	}
	sample->head.depth = index + 1;
	/* For the verifier, which does not see that it is bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(index) : "i"(BPF_CHAIN_MAX));
	sample->chain[index] = words[1];
	walk->below = frame + 16;
	walk->stack.frame = words[0];
	return 0;
}

/* Frames of 32-bit code are others. */
static __always_inline void take_chain(struct bpf_whole_sample *sample, const struct bpf_slots *all)
{
	struct chain_walk walk = { .sample = sample, .slots = all };

	if (sample->head.flags & BPF_CODE_32) {
		sample->head.flags |= BPF_CHAIN_CUT;
		return;
	}
	walk.stack.cr3 = sample->head.cr3;
	walk.stack.frame = sample->head.registers[BPF_RBP];
	walk.stack.levels = sample->head.cr4 & CR4_LA57 ? 5 : 4;
	walk.below = sample->head.registers[BPF_RSP];
	bpf_loop(BPF_CHAIN_MAX, step, &walk, 0);
	if (sample->head.depth == BPF_CHAIN_MAX && walk.stack.frame)
		sample->head.flags |= BPF_CHAIN_CUT;
}

/* To the end of the kernel's stack, which lies at a multiple of its size, as far as there is room: in two
 * pages at most. */
static __always_inline void take_stack(struct bpf_whole_sample *sample, const struct bpf_slots *all)
{
	__u64 rsp = sample->head.registers[BPF_RSP], cr3 = sample->head.cr3, page;
	__u32 levels = sample->head.cr4 & CR4_LA57 ? 5 : 4;
	__u32 whole = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u32 first = 4096 - (rsp & 4095), second;

	if (whole > BPF_STACK_MAX)
		whole = BPF_STACK_MAX;
	if (first > whole)
		first = whole;
	second = whole - first;
	page = page_of(all, cr3, levels, rsp);
	if (!page || first > BPF_STACK_MAX ||
	    bpf_probe_read_user(sample->stack, first, (void *)(page + (rsp & 4095))))
		return;
	sample->head.stack_size = first;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(second) : "i"(BPF_STACK_MAX - 1));
	if (!second)
		return;
	page = page_of(all, cr3, levels, rsp + first);
	if (page && !bpf_probe_read_user(sample->stack + first, second, (void *)page))
		sample->head.stack_size = whole;
}

static __always_inline void take_callers(struct bpf_whole_sample *sample, const struct bpf_slots *all)
{
	if (sample->head.registers[BPF_RIP] >> 63)
		take_stack(sample, all);
	else
		take_chain(sample, all);
}

struct page_search {
	const struct bpf_slots *slots;
	struct bpf_whole_sample *sample;
};

static __always_inline int has_page(const struct bpf_whole_sample *sample, __u64 gva)
{
	for (__u32 i = 0; i < BPF_PAGES_MAX; i++) {
		if (i >= sample->head.pages)
			return 0;
		if (sample->pages[i].gva == gva)
			return 1;
	}
	return 0;
}

/* Where the code of RIP, then of its callers, lies: whether it is still there later tells whether what is
 * mapped there then was so now. */
static long find_page(__u32 index, void *context)
{
	struct page_search *search = context;
	struct bpf_whole_sample *sample = search->sample;
	__u32 levels = sample->head.cr4 & CR4_LA57 ? 5 : 4, count = sample->head.pages;
	__u64 gva = sample->head.registers[BPF_RIP], gpa;

	if (index > sample->head.depth || count >= BPF_PAGES_MAX)
		return 1;
	if (index)
		gva = sample->chain[(index - 1) & BPF_CHAIN_MAX];
	gva &= ~0xfffull;
	if (has_page(sample, gva))
		return 0;
	gpa = gpa_of(search->slots, sample->head.cr3, levels, gva);
	if (gpa == NO_PAGE)
		return 1;
	sample->pages[count].gva = gva;
	sample->pages[count].gpa = gpa;
	sample->head.pages = count + 1;
	return 0;
}

/* The guest's tasks. */

struct task_walk {
	struct stack memory; /* the kernel's */
	const struct bpf_slots *slots;
	const struct bpf_cpu *cpu;
	struct bpf_sample *sample;
};

/* The GVA of WORD of a task, whose words before are known; 0: it has none. */
static __always_inline __u64 task_word_at(const struct bpf_cpu *cpu, const __u64 *task, __u32 word)
{
	__u64 base = task[word == BPF_TASK_PAGE_TABLE ? BPF_TASK_MM : BPF_TASK_AT];

	return base ? (base & ~7ull) + cpu->offsets[word] : 0;
}

/* A word of the one task, then of the other, if that is another one. */
static long take_task_word(__u32 index, void *context)
{
	struct task_walk *walk = context;
	struct bpf_sample *sample = walk->sample;
	__u32 which = index >= BPF_TASK_ROOM, word = index;
	__u64 *task = sample->tasks[which], at, value = 0;

	/* For the verifier, which does not see that they are bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(word) : "i"(BPF_TASK_ROOM - 1));
	if (word >= BPF_TASK_WORDS)
		return 0;
	at = word ? task_word_at(walk->cpu, task, word) : walk->cpu->tasks[which];
	if (at && !read_word(walk->slots, &walk->memory, at, &value))
		return 1;
	/* The kernel's own threads have no memory; all else has an address. */
	if (!at && word != BPF_TASK_PAGE_TABLE && !which)
		return 1;
	if (which && !word && (!value || value == sample->tasks[0][BPF_TASK_AT])) {
		sample->flags |= BPF_TASKS_KNOWN;
		return 1;
	}
	task[word] = value;
	if (which && word == BPF_TASK_WORDS - 1)
		sample->flags |= BPF_TASKS_KNOWN;
	return 0;
}

static __always_inline void take_tasks(struct bpf_sample *sample, const struct bpf_slots *all, __u32 vm)
{
	struct task_walk walk = { .sample = sample, .slots = all };
	void *of_vm = bpf_map_lookup_elem(&cpus, &vm);
	__u32 id = sample->vcpu;

	walk.cpu = of_vm ? bpf_map_lookup_elem(of_vm, &id) : 0;
	if (!walk.cpu || !walk.cpu->cr3)
		return;
	/* Before all else: what is of this generation was there whole when it was set. */
	sample->generation = *(const volatile __u32 *)&walk.cpu->generation;
	__asm__ volatile("" ::: "memory");
	walk.memory.cr3 = walk.cpu->cr3;
	walk.memory.levels = walk.cpu->levels;
	sample->tasks[1][BPF_TASK_AT] = 0;
	bpf_loop(BPF_TASKS * BPF_TASK_ROOM, take_task_word, &walk, 0);
}

/* What else of the guest's memory tells where it was. */
static __always_inline void look_around(struct bpf_whole_sample *whole, __u32 vm,
					const struct bpf_vcpu *known)
{
	__u32 zero = 0;
	void *of_vm = bpf_map_lookup_elem(&slots, &vm);
	struct page_search search = { .slots = of_vm ? bpf_map_lookup_elem(of_vm, &zero) : 0,
				      .sample = whole };

	if (!search.slots)
		return;
	if (known->want_chains)
		take_callers(whole, search.slots);
	take_tasks(&whole->head, search.slots, vm);
	if (!(whole->head.registers[BPF_RIP] >> 63))
		bpf_loop(BPF_CHAIN_MAX + 1, find_page, &search, 0);
}

static __always_inline __u32 size_behind(const struct bpf_sample *sample)
{
	if (sample->stack_size)
		return sample->stack_size;
	return sample->depth || sample->pages ? BPF_PAGES_SIZE + sample->depth * 8 : 0;
}

/* Sampling. */

/* As is_guest_mode() of KVM, whose flag has had several values. */
static __always_inline int is_nested(struct kvm_vcpu *vcpu)
{
	struct vcpu_svm *svm = (void *)vcpu;
	struct vcpu_vmx *vmx = (void *)vcpu;

	if (is_amd && bpf_core_field_exists(struct vcpu_svm, vmcb01))
		return BPF_CORE_READ(svm, vmcb) != BPF_CORE_READ(svm, vmcb01.ptr);
	if (!is_amd && bpf_core_type_exists(struct vcpu_vmx))
		return (__u64)BPF_CORE_READ(vmx, loaded_vmcs) !=
		       (__u64)vmx + bpf_core_field_offset(struct vcpu_vmx, vmcs01);
	return 0;
}

/*
 * kvm_intel leaves RIP in the VMCS until somebody asks for it. Perf does, for the address of a sample, and
 * KVM keeps what it read (kernel: perf_prepare_sample() -> kvm_guest_get_ip() -> kvm_rip_read()). RSP and CR3
 * nobody asks for.
 */
static __always_inline void have_rip_read(struct bpf_perf_event_data *ctx, struct kvm_vcpu *vcpu)
{
	__u32 nothing = 0;

	if (!(BPF_CORE_READ(vcpu, arch.regs_avail) & 1u << BPF_RIP))
		bpf_perf_event_output(ctx, &rip_events, BPF_F_CURRENT_CPU, &nothing, sizeof(nothing));
}

static __always_inline void take_guest(struct bpf_sample *sample, struct kvm_vcpu *vcpu)
{
	__u32 known = BPF_CORE_READ(vcpu, arch.regs_avail);

	sample->cr0 = BPF_CORE_READ(vcpu, arch.cr0);
	sample->cr4 = BPF_CORE_READ(vcpu, arch.cr4);
	sample->efer = BPF_CORE_READ(vcpu, arch.efer);
	bpf_probe_read_kernel(sample->registers, sizeof(sample->registers),
			      (void *)((__u64)vcpu + bpf_core_field_offset(struct kvm_vcpu, arch.regs)));
	if (known & 1u << BPF_RIP)
		sample->flags |= BPF_RIP_KNOWN;
	if (known & 1u << BPF_RSP)
		sample->flags |= BPF_RSP_KNOWN;
	if (is_nested(vcpu)) {
		sample->flags |= BPF_NESTED;
		return;
	}
	if (is_amd && bpf_core_type_exists(struct vcpu_svm)) {
		struct vcpu_svm *svm = (void *)vcpu;

		sample->cr3 = BPF_CORE_READ(svm, vmcb, save.cr3);
		sample->cpl = BPF_CORE_READ(svm, vmcb, save.cpl);
		sample->flags |= BPF_CR3_KNOWN | BPF_CPL_KNOWN;
		if (!(BPF_CORE_READ(svm, vmcb, save.cs.attrib) & VMCB_CODE_64))
			sample->flags |= BPF_CODE_32;
	} else if (known & 1u << bpf_core_enum_value(enum kvm_reg, VCPU_EXREG_CR3)) {
		sample->cr3 = BPF_CORE_READ(vcpu, arch.cr3);
		sample->flags |= BPF_CR3_KNOWN;
	}
}

/*
 * As KVM tells perf (kvm_arch_pmi_in_guest()): an NMI while KVM handles an interrupt that the guest was left
 * for is of the host. What the clock finds in a softirq of that time can not be told apart.
 */
static __always_inline int is_in_guest(struct kvm_vcpu *vcpu, int by_nmi)
{
	__u32 handled = BPF_CORE_READ(vcpu, arch.handling_intr_from_guest);

	if (!handled || !bpf_core_enum_value_exists(enum kvm_intr_type, KVM_HANDLING_NMI))
		return handled;
	return by_nmi == (handled == bpf_core_enum_value(enum kvm_intr_type, KVM_HANDLING_NMI));
}

/* A VMM may have destroyed it, and made another, or none: what lies there now can be anything. */
static __always_inline int is_same(struct kvm_vcpu *vcpu, const struct bpf_vcpu *known, __u32 tid)
{
	return (__u32)BPF_CORE_READ(vcpu, vcpu_id) == known->id && thread_of(vcpu, 0) == tid;
}

static __always_inline struct bpf_vcpu *find_vcpu(__u32 vm, __u32 id)
{
	void *of_vm = bpf_map_lookup_elem(&vcpus, &vm);

	return of_vm ? bpf_map_lookup_elem(of_vm, &id) : 0;
}

/*
 * Wakes the reader if it has read all there was before: it waits then, and looks from time to time as long as
 * there is more. So a VM that idles costs nothing, and one that is busy no wake-up per sample.
 */
static __always_inline void put(struct bpf_whole_sample *sample, __u64 behind, __u32 vm,
				struct bpf_vcpu *from)
{
	void *ring = bpf_map_lookup_elem(&samples, &vm);
	__u64 size = sizeof(sample->head) + behind;

	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(size) : "i"(2 * BPF_STACK_MAX - 1));
	if (ring && bpf_ringbuf_output(ring, sample, size, 0))
		__sync_fetch_and_add(&from->lost, 1);
}

SEC("perf_event")
int take(struct bpf_perf_event_data *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 vm = BPF_COOKIE_VM(cookie), tid = (__u32)bpf_get_current_pid_tgid(), zero = 0;
	struct bpf_vcpu *known = find_vcpu(vm, BPF_COOKIE_VCPU(cookie));
	struct bpf_whole_sample *whole = bpf_map_lookup_elem(&scratch, &zero);
	__u32 behind = 0, complete = BPF_RIP_KNOWN | BPF_RSP_KNOWN | BPF_CR3_KNOWN;
	struct bpf_sample *sample;
	struct kvm_vcpu *vcpu;

	if (!known || !known->vcpu || !whole)
		return 0;
	sample = &whole->head;
	vcpu = (void *)known->vcpu;
	sample->time = bpf_ktime_get_ns();
	sample->period = ctx->sample_period;
	sample->vcpu = known->id;
	sample->tid = known->inner_tid;
	sample->flags = sample->cpl = sample->depth = sample->stack_size = sample->pages = 0;
	sample->cr3 = 0;
	sample->generation = 0;
	if (is_same(vcpu, known, tid) && is_in_guest(vcpu, !!known->by_nmi)) {
		sample->flags = BPF_IN_GUEST;
		have_rip_read(ctx, vcpu);
		take_guest(sample, vcpu);
		if ((sample->flags & complete) == complete)
			look_around(whole, vm, known);
		else if (known->want_chains)
			sample->flags |= BPF_CHAIN_CUT;
		behind = size_behind(sample);
	} else {
		sample->registers[BPF_RIP] = ctx->regs.rip;
		sample->cpl = ctx->regs.cs & 3;
	}
	sample->cost = bpf_ktime_get_ns() - sample->time;
	if (behind > BPF_STACK_MAX)
		return 0;
	put(whole, behind, vm, known);
	return 0;
}
