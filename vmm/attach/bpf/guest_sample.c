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

/* Since Linux 6.2. */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

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

/* The order of the registers: arch/x86/include/asm/kvm_host.h. */
enum kvm_reg {
	VCPU_REGS_RDX = 2,
	VCPU_REGS_RSP = 4,
	VCPU_REGS_RBP = 5,
	VCPU_REGS_RDI = 7,
	VCPU_REGS_R10 = 10,
	VCPU_REGS_R13 = 13,
	VCPU_REGS_RIP = 16,
	VCPU_REGS,
	VCPU_EXREG_CR3 = 19,
};

struct kvm_vcpu_arch {
	unsigned long regs[VCPU_REGS];
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

/* A bound of what of struct kvm_vcpu_arch is read at once. */
#define ARCH_SIZE 256
/* Frames of most functions are smaller. */
#define WINDOW 256
/* What an entry of the last but one table maps, and how many of them are remembered: of code that is called
 * from one image to another and back, of a stack, and of the kernel's tasks. */
#define REGION_BITS 21
#define REGIONS     8
#define NO_REGION   (~0ull)
#define LEVELS      5

/* The loader's. */
const volatile __u32 is_amd;   /* vCPUs are of kvm_amd */
const volatile __u32 can_cast; /* the kernel has bpf_rdonly_cast() */

/* Smaller slots are not told: what is told of a VM has to fit into 32 KiB (kernel: bpf_iter.c,
 * bpf_seq_read()). */
__u64 slot_size_min;

/* Of each vCPU: what is known of it, and its ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VCPUS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			/* There may be more of them than here. */
			__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, BPF_CHUNK);
		});
} vcpus SEC(".maps");

/* Of each VM: what wakes the reader of its samples. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BPF_VMS_MAX);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 4096); /* or what a page is */
		});
} bells SEC(".maps");

/*
 * What one entry of the guest's page tables maps, or whose table is there: 2 MiB of a space. It is
 * remembered from one sample to the next, with all entries that it was found by: before it is used again they
 * are read again, where they were. So it is as true as if it was looked for, and none of these reads has to
 * wait for the one before.
 */
struct region {
	__u64 number; /* GVA / 2 MiB; NO_REGION: none */
	__u64 entry;
	__u32 bits;            /* of the page that ENTRY maps; 0: it is a table's */
	__u32 turn;            /* of the space that it was found or read again in */
	__u64 cr3;             /* of that space */
	__u32 slots;           /* generation of those by which it was found */
	__u32 levels, count;   /* of that space, and of entries */
	__u64 hva[LEVELS - 1]; /* of the entries */
	__u64 word[LEVELS - 1];
};

/* An address space of the guest, and the page of it that was read last. */
struct space {
	__u64 cr3;
	__u64 page, page_hva; /* the GVA's page number; 0: there is none */
	__u32 levels;
	__u32 turn; /* a space of now; never the same again for a long time */
	struct region regions[REGIONS];
};

/* A walk along frame pointers. */
struct chain {
	__u64 frame;
	__u64 below;                 /* where the frame can begin */
	__u64 end;                   /* of user space */
	__u64 window, words;         /* of the stack: its GVA, and how much of it has been read */
	__u64 stack[WINDOW / 8 + 1]; /* the last is for the verifier */
};

/* A vCPU, and what its samples are made by, of which there is one at a time. Nothing of it is on the stack,
 * where the verifier would follow each number. */
struct scratch {
	struct bpf_vcpu vcpu;
	struct space space;
	struct bpf_address code; /* that was found last */
	struct chain chain;
	__u8 arch[ARCH_SIZE]; /* of the vCPU's state, what begins with its registers */
};

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
	found.pid = (__u64)BPF_CORE_READ(vcpu, pid);
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

/* What is read of ALL between two looks at it that find the same even number is of one state. */
static __always_inline __u32 generation_of(const struct bpf_slots *all)
{
	__u32 generation;

	__asm__ volatile("" ::: "memory");
	generation = *(const volatile __u32 *)&all->generation;
	__asm__ volatile("" ::: "memory");
	return generation;
}

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

static __always_inline __u64 entry_hva(const struct bpf_slots *all, __u64 table, __u64 gva, __u32 shift)
{
	return hva_of(all, (table & PTE_ADDRESS) + ((gva >> (shift & 63)) & 511) * 8);
}

/* The entry at HVA; 0: it can not be read, or is not present. */
static __always_inline __u64 read_entry(__u64 hva)
{
	__u64 entry = 0;

	if (!hva || bpf_probe_read_user(&entry, sizeof(entry), (void *)hva) || !(entry & PTE_PRESENT))
		return 0;
	return entry;
}

/* The regions' own numbers are of the sample before. */
static __always_inline void open_space(struct space *space, __u64 cr3, __u32 levels)
{
	space->cr3 = cr3;
	space->levels = levels;
	space->page_hva = 0;
	space->turn++;
}

/* Down to the last but one table, by the slots of GENERATION, if they are still those; 0: nothing is there.
 */
static __noinline int walk_to_region(struct space *space, const struct bpf_slots *all, __u64 gva,
				     struct region *region, __u32 generation)
{
	__u32 shift, count = 0;
	__u64 entry, hva;

	if (!space || !all || !region)
		return 0;
	entry = space->cr3;
	region->number = NO_REGION;
	region->bits = 0;
	for (__u32 level = 0; level < LEVELS - 1; level++) {
		if (level + space->levels < LEVELS)
			continue;
		shift = PAGE_SHIFT + 9 * (LEVELS - 1 - level);
		hva = entry_hva(all, entry, gva, shift);
		entry = read_entry(hva);
		if (!entry)
			return 0;
		region->hva[level] = hva;
		region->word[level] = entry;
		count = level + 1;
		if (shift <= 30 && entry & PTE_LARGE) {
			region->bits = shift;
			break;
		}
	}
	region->entry = entry;
	region->levels = space->levels;
	region->count = count;
	region->cr3 = space->cr3;
	region->slots = generation;
	region->turn = space->turn;
	region->number = gva >> REGION_BITS;
	return 1;
}

/* All that it was found by is there still. */
static __always_inline int is_true(const struct space *space, const struct region *region)
{
	__u64 word, changed = 0;

	if (region->cr3 != space->cr3 || region->levels != space->levels)
		return 0;
	for (__u32 level = 0; level < LEVELS - 1; level++) {
		if (level + space->levels < LEVELS || level >= region->count)
			continue;
		word = 0;
		bpf_probe_read_user(&word, sizeof(word), (void *)region->hva[level]);
		changed |= word ^ region->word[level];
	}
	return !changed;
}

/*
 * The GPA of the page that GVA is in; BPF_NO_PAGE: none, or the slots change meanwhile. SDM vol. 3A 4.5.
 * While a sample is taken the vCPU stands still, so what the upper levels say is true for all of it.
 */
static __noinline __u64 gpa_of(struct space *space, const struct bpf_slots *all, __u64 gva)
{
	struct region *region;
	__u32 bits, generation;
	__u64 entry, mask;

	if (!space || !all)
		return BPF_NO_PAGE;
	generation = generation_of(all);
	if (generation & 1)
		return BPF_NO_PAGE;
	region = &space->regions[(gva >> REGION_BITS) & (REGIONS - 1)];
	if (region->number != gva >> REGION_BITS || region->slots != generation ||
	    (region->turn != space->turn && !is_true(space, region))) {
		if (!walk_to_region(space, all, gva, region, generation))
			return BPF_NO_PAGE;
	}
	region->turn = space->turn;
	entry = region->entry;
	bits = region->bits;
	if (!bits) {
		bits = PAGE_SHIFT;
		entry = read_entry(entry_hva(all, entry, gva, PAGE_SHIFT));
		if (!entry)
			return BPF_NO_PAGE;
	}
	if (generation_of(all) != generation)
		return BPF_NO_PAGE;
	mask = (1ull << (bits & 63)) - 1;
	return ((entry & PTE_ADDRESS & ~mask) | (gva & mask)) & ~0xfffull;
}

/* SIZE bytes that are in one page. */
static __always_inline int read_space(struct space *space, const struct bpf_slots *all, __u64 gva, void *to,
				      __u32 size)
{
	if (!space->page_hva || space->page != gva >> PAGE_SHIFT) {
		__u32 generation = generation_of(all);
		__u64 hva = hva_of(all, gpa_of(space, all, gva));

		space->page = gva >> PAGE_SHIFT;
		space->page_hva = generation_of(all) == generation ? hva : 0;
	}
	return space->page_hva && !bpf_probe_read_user(to, size, (void *)(space->page_hva + (gva & 0xfff)));
}

/* Of a walk by bpf_loop(), which has its context on the stack. */
struct walk {
	struct scratch *scratch;
	struct bpf_whole_sample *sample;
};

/* The window from the frame on, which has both its words though a page ends between them. */
static __noinline int move_window(struct space *space, const struct bpf_slots *all, struct chain *chain)
{
	__u64 size;

	if (!space || !all || !chain)
		return 0;
	size = 4096 - (chain->frame & 0xfff);
	chain->words = 0;
	if (size > WINDOW)
		size = WINDOW;
	if (!read_space(space, all, chain->frame, chain->stack, size))
		return 0;
	if (size < 16) {
		if (!read_space(space, all, chain->frame + 8, &chain->stack[1], 8))
			return 0;
		size = 16;
	}
	chain->window = chain->frame;
	chain->words = size / 8;
	return 1;
}

/* The page of code at GVA: mostly that of the last one. */
static __always_inline __u64 code_page(struct scratch *scratch, __u64 gva)
{
	struct bpf_address *code = &scratch->code;

	gva &= ~0xfffull;
	if (gva != code->gva) {
		code->gva = gva;
		code->page = gpa_of(&scratch->space, &scratch->vcpu.slots, gva);
	}
	return code->page;
}

/*
 * A frame: the caller's RBP, and above it where it goes on. The outermost has RBP 0. Stacks grow down: the
 * caller's frame lies higher, within reach; else RBP is no frame pointer but any number. So it is where the
 * two words are those of 32-bit code, read as one: its stack is below 4 GiB, where the frames of 64-bit code
 * lead no higher. kvm_intel has CS in the VMCS alone.
 */
static long step(__u32 index, void *context)
{
	const struct walk *walk = context;
	struct scratch *scratch = walk->scratch;
	struct chain *chain = &scratch->chain;
	struct bpf_whole_sample *sample = walk->sample;
	__u64 frame = chain->frame, place = (frame - chain->window) / 8, next, caller;

	if (!frame || index >= BPF_CHAIN_MAX)
		return 1;
	if (frame & 7 || frame >= chain->end || frame - chain->below > USER_FRAME_MAX)
		goto cut;
	if (place + 2 > chain->words) {
		if (!move_window(&scratch->space, &scratch->vcpu.slots, chain))
			goto cut;
		place = 0;
	}
	/* For the verifier, which does not see that it is bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(place) : "i"(WINDOW / 8 - 1));
	next = chain->stack[place];
	caller = chain->stack[place + 1];
	if (!caller || caller >= chain->end || (next >> 32 && !(frame >> 32)))
		goto cut;
	index++;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(index) : "i"(BPF_CHAIN_MAX));
	sample->addresses[index].gva = caller;
	sample->addresses[index].page = code_page(scratch, caller);
	sample->head.addresses = index + 1;
	chain->below = frame + 16;
	chain->frame = next;
	return 0;
cut:
	sample->head.flags |= BPF_CHAIN_CUT;
	return 1;
}

/* Frames of 32-bit code are others. */
static __always_inline void take_chain(struct walk *walk)
{
	struct chain *chain = &walk->scratch->chain;
	struct bpf_sample *sample = &walk->sample->head;

	if (sample->flags & BPF_CODE_32) {
		sample->flags |= BPF_CHAIN_CUT;
		return;
	}
	chain->frame = sample->rbp;
	chain->below = sample->flags & BPF_RSP_KNOWN ? sample->rsp : sample->rbp;
	chain->end = 1ull << (walk->scratch->space.levels == 5 ? 56 : 47);
	chain->window = chain->words = 0;
	bpf_loop(BPF_CHAIN_MAX, step, walk, 0);
	if (sample->addresses == BPF_ADDRESSES_MAX && chain->frame)
		sample->flags |= BPF_CHAIN_CUT;
}

/* To the end of the kernel's stack, which lies at a multiple of its size, as far as there is room: in two
 * pages at most. */
static __always_inline void take_stack(struct walk *walk)
{
	struct bpf_whole_sample *sample = walk->sample;
	struct space *space = &walk->scratch->space;
	__u64 rsp = sample->head.rsp;
	__u32 whole = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u32 first = 4096 - (rsp & 4095), second;

	if (whole > BPF_STACK_MAX)
		whole = BPF_STACK_MAX;
	if (first > whole)
		first = whole;
	second = whole - first;
	if (first > BPF_STACK_MAX ||
	    !read_space(space, &walk->scratch->vcpu.slots, rsp, sample->stack, first))
		return;
	sample->head.stack_size = first;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(second) : "i"(BPF_STACK_MAX - 1));
	if (second &&
	    read_space(space, &walk->scratch->vcpu.slots, rsp + first, sample->stack + first, second))
		sample->head.stack_size = whole;
}

/* RIP, its callers if they are wanted, and their pages: whether the code is still there later tells whether
 * what is mapped there then was so now. */
static __always_inline void take_addresses(struct walk *walk, int callers)
{
	struct bpf_whole_sample *sample = walk->sample;

	walk->scratch->code.gva = 1; /* no page's */
	sample->addresses[0].gva = sample->head.rip;
	sample->addresses[0].page = code_page(walk->scratch, sample->head.rip);
	sample->head.addresses = 1;
	if (callers)
		take_chain(walk);
}

/* The guest's tasks. */

/* The GVA of WORD of a task, whose words before are known; 0: it has none. */
static __always_inline __u64 task_word_at(const struct bpf_cpu *cpu, const __u64 *task, __u32 word)
{
	__u64 base = task[word == BPF_TASK_PAGE_TABLE ? BPF_TASK_MM : BPF_TASK_AT];

	return base ? (base & ~7ull) + cpu->offsets[word] : 0;
}

/* A word of the one task, then of the other, if that is another one. */
static long take_task_word(__u32 index, void *context)
{
	const struct walk *walk = context;
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;
	struct bpf_sample *sample = &walk->sample->head;
	__u32 which = index >= BPF_TASK_ROOM, word = index;
	__u64 *task = sample->tasks.words[which], at, value = 0;

	/* For the verifier, which does not see that they are bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(word) : "i"(BPF_TASK_ROOM - 1));
	if (word >= BPF_TASK_WORDS)
		return 0;
	at = word ? task_word_at(cpu, task, word) : cpu->tasks[which];
	if (at && !read_space(&walk->scratch->space, &walk->scratch->vcpu.slots, at, &value, sizeof(value)))
		return 1;
	/* The kernel's own threads have no memory; all else has an address. */
	if (!at && word != BPF_TASK_PAGE_TABLE && !which)
		return 1;
	if (which && !word && (!value || value == sample->tasks.words[0][BPF_TASK_AT])) {
		sample->flags |= BPF_TASKS_KNOWN;
		return 1;
	}
	task[word] = value;
	if (which && word == BPF_TASK_WORDS - 1)
		sample->flags |= BPF_TASKS_KNOWN;
	return 0;
}

static __always_inline void take_tasks(struct walk *walk)
{
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;

	if (!cpu->cr3)
		return;
	/* Before all else: what is of this generation was there whole when it was set. */
	walk->sample->head.generation = *(const volatile __u32 *)&cpu->generation;
	__asm__ volatile("" ::: "memory");
	open_space(&walk->scratch->space, cpu->cr3, cpu->levels);
	walk->sample->head.tasks.words[1][BPF_TASK_AT] = 0;
	bpf_loop(BPF_TASKS * BPF_TASK_ROOM, take_task_word, walk, 0);
}

/*
 * CR3 of user code that the processor alone has: Linux runs it in the page tables of the current task, whose
 * address is one of the kernel's own memory. What is left of a kernel that runs no more says nothing: the
 * reader knows which one runs.
 */
static __always_inline void take_cr3_of_task(struct walk *walk)
{
	struct bpf_sample *sample = &walk->sample->head;
	__u64 table = sample->tasks.words[0][BPF_TASK_PAGE_TABLE], gpa;

	if (!(sample->flags & BPF_TASKS_KNOWN) || !sample->tasks.words[0][BPF_TASK_MM])
		return;
	gpa = gpa_of(&walk->scratch->space, &walk->scratch->vcpu.slots, table);
	if (gpa == BPF_NO_PAGE)
		return;
	sample->cr3 = gpa;
	sample->flags |= BPF_CR3_OF_TASK;
}

/* What else of the guest's memory tells where it was. */
static __always_inline void look_around(struct scratch *scratch, struct bpf_whole_sample *whole)
{
	struct bpf_sample *sample = &whole->head;
	struct walk walk = { .scratch = scratch, .sample = whole };
	__u32 user = !(sample->rip >> 63);

	take_tasks(&walk);
	if (user && !(sample->flags & BPF_CR3_KNOWN))
		take_cr3_of_task(&walk);
	open_space(&scratch->space, sample->cr3, sample->cr4 & CR4_LA57 ? 5 : 4);
	if (user && sample->flags & (BPF_CR3_KNOWN | BPF_CR3_OF_TASK))
		take_addresses(&walk, scratch->vcpu.want_chains);
	else if (!user && scratch->vcpu.want_chains && sample->flags & BPF_RSP_KNOWN)
		take_stack(&walk);
	else if (scratch->vcpu.want_chains)
		sample->flags |= BPF_CHAIN_CUT;
}

/* Sampling. */

/*
 * A word of kernel memory, whose type may be a module's. Through a pointer that the verifier knows the type
 * of it is one instruction, which gives 0 where nothing is mapped: any type that begins with a number will
 * do.
 */
static __always_inline __u64 kernel_word(__u64 at)
{
	__u64 word = 0;

	if (can_cast)
		return *(const __u64 *)bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct pt_regs));
	bpf_probe_read_kernel(&word, sizeof(word), (void *)at);
	return word;
}

#define VCPU_OFFSET(field) bpf_core_field_offset(struct kvm_vcpu, field)

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
 * nobody asks for. All other registers KVM has stored when it handles the interrupt that the guest was left
 * for (kernel: __vmx_vcpu_run(), before vmx_handle_exit_irqoff() and, for an NMI, in vmx_vcpu_enter_exit()).
 */
static __always_inline void have_rip_read(struct bpf_perf_event_data *ctx, struct kvm_vcpu *vcpu)
{
	__u32 nothing = 0;

	if (!is_amd &&
	    !((__u32)kernel_word((__u64)vcpu + VCPU_OFFSET(arch.regs_avail)) & 1u << VCPU_REGS_RIP))
		bpf_perf_event_output(ctx, &rip_events, BPF_F_CURRENT_CPU, &nothing, sizeof(nothing));
}

/* Of struct kvm_vcpu_arch: what lies near the registers is read along with them where each read is a call. */
static __always_inline __u64 arch_word(const struct scratch *scratch, struct kvm_vcpu *vcpu, __u64 offset)
{
	__u64 place = offset - VCPU_OFFSET(arch.regs);

	if (!can_cast && place <= ARCH_SIZE - sizeof(__u64))
		return *(const __u64 *)&scratch->arch[place];
	return kernel_word((__u64)vcpu + offset);
}

#define ARCH_WORD(field) arch_word(scratch, vcpu, VCPU_OFFSET(arch.field))
#define ARCH_REGISTER(number)                                                                                \
	arch_word(scratch, vcpu, VCPU_OFFSET(arch.regs) + VCPU_REGS_##number * sizeof(__u64))

static __always_inline void take_guest(struct scratch *scratch, struct kvm_vcpu *vcpu,
				       struct bpf_sample *sample)
{
	__u32 known;

	if (!can_cast)
		bpf_probe_read_kernel(scratch->arch, sizeof(scratch->arch),
				      (void *)((__u64)vcpu + VCPU_OFFSET(arch.regs)));
	known = ARCH_WORD(regs_avail);
	sample->cr0 = ARCH_WORD(cr0);
	sample->cr4 = ARCH_WORD(cr4);
	sample->efer = ARCH_WORD(efer);
	sample->rip = ARCH_REGISTER(RIP);
	sample->rsp = ARCH_REGISTER(RSP);
	sample->rbp = ARCH_REGISTER(RBP);
	if (sample->rip >> 63) {
		sample->rdx = ARCH_REGISTER(RDX);
		sample->rdi = ARCH_REGISTER(RDI);
		sample->r10 = ARCH_REGISTER(R10);
		sample->r13 = ARCH_REGISTER(R13);
	}
	if (known & 1u << VCPU_REGS_RIP)
		sample->flags |= BPF_RIP_KNOWN;
	if (known & 1u << VCPU_REGS_RSP)
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
		sample->cr3 = ARCH_WORD(cr3);
		sample->flags |= BPF_CR3_KNOWN;
	}
}

/*
 * As KVM tells perf (kvm_arch_pmi_in_guest()): an NMI while KVM handles an interrupt that the guest was left
 * for is of the host. What the clock finds in a softirq of that time can not be told apart.
 */
static __always_inline int is_in_guest(struct kvm_vcpu *vcpu, int by_nmi)
{
	__u8 handled = kernel_word((__u64)vcpu + VCPU_OFFSET(arch.handling_intr_from_guest));

	if (!handled || !bpf_core_enum_value_exists(enum kvm_intr_type, KVM_HANDLING_NMI))
		return handled;
	return by_nmi == (handled == bpf_core_enum_value(enum kvm_intr_type, KVM_HANDLING_NMI));
}

/* A VMM may have destroyed it, and made another, or none: what lies there now can be anything. The thread is
 * the current one, so it has its struct pid still. */
static __always_inline int is_same(struct kvm_vcpu *vcpu, const struct bpf_vcpu *known)
{
	return (__u32)bpf_get_current_pid_tgid() == known->tid &&
	       kernel_word((__u64)vcpu + VCPU_OFFSET(pid)) == known->pid &&
	       (__u32)kernel_word((__u64)vcpu + VCPU_OFFSET(vcpu_id)) == known->id;
}

/* The ring. */

/* Where the next sample goes to, and how far that is from the head; 0: there is no room. */
static __always_inline struct bpf_whole_sample *find_room(void *map, const struct bpf_vcpu *vcpu,
							  __u64 *ahead)
{
	__u64 head = vcpu->head, offset = head & (BPF_CHUNK - 1);
	void *chunk;
	__u32 key;

	*ahead = 0;
	if (offset > BPF_CHUNK - sizeof(struct bpf_whole_sample)) {
		*ahead = BPF_CHUNK - offset;
		offset = 0;
	}
	head += *ahead;
	if (head + sizeof(struct bpf_whole_sample) - *(const volatile __u64 *)&vcpu->tail >
	    (__u64)vcpu->chunks * BPF_CHUNK)
		return 0;
	key = 1 + ((__u32)(head / BPF_CHUNK) & (vcpu->chunks - 1));
	chunk = bpf_map_lookup_elem(map, &key);
	return chunk ? chunk + offset : 0;
}

/* Wakes the reader, who has read all there was before, and waits. */
static __noinline int ring_bell(struct bpf_vcpu *vcpu)
{
	__u32 vm, rung = 0;
	void *bell;

	if (!vcpu)
		return 0;
	vcpu->waits = 0;
	vm = vcpu->vm;
	bell = bpf_map_lookup_elem(&bells, &vm);
	if (bell)
		bpf_ringbuf_output(bell, &rung, sizeof(rung), BPF_RB_FORCE_WAKEUP);
	return 0;
}

/*
 * The addition is one instruction of the processor (lock add), behind which nothing is read before all can
 * see it: so either this sees that the reader waits, or the reader, who looks once more, sees the sample.
 */
static __always_inline void put(struct bpf_vcpu *vcpu, __u64 size)
{
	__sync_fetch_and_add(&vcpu->head, size);
	if (*(const volatile __u32 *)&vcpu->waits)
		ring_bell(vcpu);
}

static __always_inline __u32 size_of(const struct bpf_sample *sample)
{
	return sizeof(*sample) + ((sample->stack_size + 7) & ~7u) +
	       sample->addresses * sizeof(struct bpf_address);
}

static __always_inline void take_sample(struct bpf_perf_event_data *ctx, struct scratch *scratch,
					struct bpf_whole_sample *whole)
{
	const struct bpf_vcpu *known = &scratch->vcpu;
	struct kvm_vcpu *vcpu = (void *)known->vcpu;
	struct bpf_sample *sample = &whole->head;

	sample->time = bpf_ktime_get_ns();
	sample->period = ctx->sample_period;
	sample->tid = known->inner_tid;
	sample->flags = sample->cpl = sample->addresses = sample->stack_size = 0;
	sample->cr3 = 0;
	sample->generation = 0;
	if (is_same(vcpu, known) && is_in_guest(vcpu, !!known->by_nmi)) {
		sample->flags = BPF_IN_GUEST;
		have_rip_read(ctx, vcpu);
		take_guest(scratch, vcpu, sample);
		if (sample->flags & BPF_RIP_KNOWN && !(sample->flags & BPF_NESTED))
			look_around(scratch, whole);
		else if (known->want_chains)
			sample->flags |= BPF_CHAIN_CUT;
	} else {
		sample->rip = ctx->regs.rip;
		sample->cpl = ctx->regs.cs & 3;
	}
	sample->size = size_of(sample);
	sample->cost = bpf_ktime_get_ns() - sample->time;
}

SEC("perf_event")
int take(struct bpf_perf_event_data *ctx)
{
	__u32 number = (__u32)bpf_get_attach_cookie(ctx), zero = 0;
	void *map = bpf_map_lookup_elem(&vcpus, &number);
	struct scratch *scratch = map ? bpf_map_lookup_elem(map, &zero) : 0;
	struct bpf_whole_sample *sample;
	__u64 ahead;

	if (!scratch || !scratch->vcpu.vcpu)
		return 0;
	sample = find_room(map, &scratch->vcpu, &ahead);
	if (!sample) {
		scratch->vcpu.lost++;
		return 0;
	}
	take_sample(ctx, scratch, sample);
	put(&scratch->vcpu, ahead + sample->head.size);
	return 0;
}
