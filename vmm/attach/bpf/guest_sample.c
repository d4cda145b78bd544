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

/* A bound of what of struct kvm_vcpu_arch is read at once. */
#define ARCH_SIZE 256
/* Frames of most functions are smaller. */
#define WINDOW 256
/* What an entry of the last but one table maps, and how many of them are remembered: of code that is called
 * from one image to another and back, and of a stack. */
#define REGION_BITS 21
#define REGIONS     4
#define NO_REGION   (~0ull)

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

/* What one entry of the guest's page tables maps, or whose table is there: REGION_SIZE of a space. */
struct region {
	__u64 number; /* GVA / REGION_SIZE; NO_REGION: none */
	__u64 entry;
	__u64 bits; /* of the page that ENTRY maps; 0: it is a table's */
};

/* An address space of the guest, and the page of it that was read last. */
struct space {
	__u64 cr3;
	__u64 page, page_hva; /* the GVA's page number; 0: there is none */
	__u32 levels;
	struct region regions[REGIONS];
};

/* A walk along frame pointers. */
struct chain {
	__u64 frame;
	__u64 below;                 /* where the frame can begin */
	__u64 window, words;         /* of the stack: its GVA, and how much of it has been read */
	__u64 stack[WINDOW / 8 + 1]; /* the last is for the verifier */
};

/* What a sample is made in. Nothing of it is on the stack, where the verifier would follow each number. */
struct scratch {
	struct space space;
	struct bpf_address code; /* that was found last */
	__u8 arch[ARCH_SIZE];    /* of the vCPU's state, what begins with its registers */
	struct chain chain;
	struct bpf_tasks tasks;
	struct bpf_whole_sample whole;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
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
#define NO_PAGE     (~0ull)

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

static __always_inline void open_space(struct space *space, __u64 cr3, __u32 levels)
{
	space->cr3 = cr3;
	space->levels = levels;
	space->page_hva = 0;
	for (__u32 i = 0; i < REGIONS; i++)
		space->regions[i].number = NO_REGION;
}

/* Down to the last but one table. */
static __always_inline int walk_to_region(const struct space *space, const struct bpf_slots *all, __u64 gva,
					  struct region *region)
{
	__u64 entry = space->cr3;
	int bits = 0;

	region->number = NO_REGION;
	for (__u32 level = 0; level < 4 && !bits; level++) {
		if (level + space->levels < 5)
			continue;
		bits = walk_level(all, &entry, gva, PAGE_SHIFT + 9 * (4 - level));
		if (bits < 0)
			return 0;
	}
	region->number = gva >> REGION_BITS;
	region->entry = entry;
	region->bits = bits;
	return 1;
}

/*
 * The GPA of the page that GVA is in; NO_PAGE: none. SDM vol. 3A 4.5. While a sample is taken the vCPU stands
 * still: as the processor (4.10.3), this remembers what the upper levels say, and no longer.
 */
static __noinline __u64 gpa_of(struct space *space, const struct bpf_slots *all, __u64 gva)
{
	struct region *region;
	__u64 entry, mask;
	int bits;

	if (!space || !all)
		return NO_PAGE;
	region = &space->regions[(gva >> REGION_BITS) & (REGIONS - 1)];
	if (region->number != gva >> REGION_BITS && !walk_to_region(space, all, gva, region))
		return NO_PAGE;
	entry = region->entry;
	bits = region->bits ? region->bits : walk_level(all, &entry, gva, PAGE_SHIFT);
	if (bits < 0)
		return NO_PAGE;
	mask = (1ull << (bits & 63)) - 1;
	return ((entry & PTE_ADDRESS & ~mask) | (gva & mask)) & ~0xfffull;
}

/* SIZE bytes that are in one page. */
static __always_inline int read_space(struct space *space, const struct bpf_slots *all, __u64 gva, void *to,
				      __u32 size)
{
	if (!space->page_hva || space->page != gva >> PAGE_SHIFT) {
		space->page = gva >> PAGE_SHIFT;
		space->page_hva = hva_of(all, gpa_of(space, all, gva));
	}
	return space->page_hva && !bpf_probe_read_user(to, size, (void *)(space->page_hva + (gva & 0xfff)));
}

/* Of a walk by bpf_loop(), which has its context on the stack. */
struct walk {
	struct scratch *scratch;
	const struct bpf_slots *slots;
	const struct bpf_cpu *cpu;
};

/* The window from the frame on, which has both its words though a page ends between them. */
static __always_inline int move_window(const struct walk *walk, struct chain *chain)
{
	struct space *space = &walk->scratch->space;
	__u64 size = 4096 - (chain->frame & 0xfff);

	chain->words = 0;
	if (size > WINDOW)
		size = WINDOW;
	if (!read_space(space, walk->slots, chain->frame, chain->stack, size))
		return 0;
	if (size < 16) {
		if (!read_space(space, walk->slots, chain->frame + 8, &chain->stack[1], 8))
			return 0;
		size = 16;
	}
	chain->window = chain->frame;
	chain->words = size / 8;
	return 1;
}

/* A frame's two words: the caller's RBP, and where it goes on. */
static __always_inline int read_frame(const struct walk *walk, struct chain *chain, __u64 words[2])
{
	__u64 place = (chain->frame - chain->window) / 8;

	if (place + 2 > chain->words) {
		if (!move_window(walk, chain))
			return 0;
		place = 0;
	}
	/* For the verifier, which does not see that it is bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(place) : "i"(WINDOW / 8 - 1));
	words[0] = chain->stack[place];
	words[1] = chain->stack[place + 1];
	return 1;
}

/* Stacks grow down: the caller's frame lies higher, within reach; else RBP is no frame pointer but any
 * number. */
static __always_inline int is_frame(const struct chain *chain, __u32 levels)
{
	__u64 frame = chain->frame, user_end = 1ull << (levels == 5 ? 56 : 47);

	return !(frame & 7) && frame < user_end && frame >= chain->below &&
	       frame - chain->below <= USER_FRAME_MAX;
}

/*
 * The words of 32-bit code's frame, read as one: the return address is the upper half of NEXT. Its stack is
 * below 4 GiB, where the frames of 64-bit code lead no higher. kvm_intel has CS in the VMCS alone.
 */
static __always_inline int is_narrow(const struct chain *chain, __u64 next)
{
	return !(chain->frame >> 32) && next >> 32;
}

/* A frame: the caller's RBP, and above it where it goes on. The outermost has RBP 0. */
static long step(__u32 index, void *context)
{
	const struct walk *walk = context;
	struct chain *chain = &walk->scratch->chain;
	struct bpf_whole_sample *sample = &walk->scratch->whole;
	__u32 levels = walk->scratch->space.levels;
	__u64 words[2];

	if (!chain->frame || index >= BPF_CHAIN_MAX)
		return 1;
	if (!is_frame(chain, levels) || !read_frame(walk, chain, words) || !words[1] ||
	    is_narrow(chain, words[0]) || words[1] >> (levels == 5 ? 56 : 47)) {
		sample->head.flags |= BPF_CHAIN_CUT;
		return 1;
	}
	index++;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(index) : "i"(BPF_CHAIN_MAX));
	sample->addresses[index].gva = words[1];
	sample->head.addresses = index + 1;
	chain->below = chain->frame + 16;
	chain->frame = words[0];
	return 0;
}

/* Frames of 32-bit code are others. */
static __always_inline void take_chain(struct walk *walk)
{
	struct chain *chain = &walk->scratch->chain;
	struct bpf_sample *sample = &walk->scratch->whole.head;

	if (sample->flags & BPF_CODE_32) {
		sample->flags |= BPF_CHAIN_CUT;
		return;
	}
	chain->frame = sample->registers[BPF_RBP];
	chain->below = sample->registers[BPF_RSP];
	chain->words = 0;
	bpf_loop(BPF_CHAIN_MAX, step, walk, 0);
	if (sample->addresses == BPF_ADDRESSES_MAX && chain->frame)
		sample->flags |= BPF_CHAIN_CUT;
}

/* To the end of the kernel's stack, which lies at a multiple of its size, as far as there is room: in two
 * pages at most. */
static __always_inline void take_stack(struct walk *walk)
{
	struct bpf_whole_sample *sample = &walk->scratch->whole;
	struct space *space = &walk->scratch->space;
	__u64 rsp = sample->head.registers[BPF_RSP];
	__u32 whole = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u32 first = 4096 - (rsp & 4095), second;

	if (whole > BPF_STACK_MAX)
		whole = BPF_STACK_MAX;
	if (first > whole)
		first = whole;
	second = whole - first;
	if (first > BPF_STACK_MAX || !read_space(space, walk->slots, rsp, sample->stack, first))
		return;
	sample->head.stack_size = first;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(second) : "i"(BPF_STACK_MAX - 1));
	if (second && read_space(space, walk->slots, rsp + first, sample->stack + first, second))
		sample->head.stack_size = whole;
}

/* Where the code of RIP, then of its callers, lies: whether it is still there later tells whether what is
 * mapped there then was so now. */
static long find_page(__u32 index, void *context)
{
	const struct walk *walk = context;
	struct bpf_whole_sample *sample = &walk->scratch->whole;
	struct bpf_address *code = &walk->scratch->code;
	__u64 gva;

	if (index >= sample->head.addresses)
		return 1;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(index) : "i"(BPF_ADDRESSES_MAX - 1));
	gva = sample->addresses[index].gva & ~0xfffull;
	if (!index || gva != code->gva) {
		code->gva = gva;
		code->page = gpa_of(&walk->scratch->space, walk->slots, gva);
	}
	if (code->page == NO_PAGE)
		return 1;
	sample->addresses[index].page = code->page;
	sample->head.pages = index + 1;
	return 0;
}

/* RIP, its callers if they are wanted, and their pages. */
static __always_inline void take_addresses(struct walk *walk, int callers)
{
	struct bpf_whole_sample *sample = &walk->scratch->whole;

	sample->addresses[0].gva = sample->head.registers[BPF_RIP];
	sample->head.addresses = 1;
	if (callers)
		take_chain(walk);
	bpf_loop(BPF_ADDRESSES_MAX, find_page, walk, 0);
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
	struct bpf_tasks *tasks = &walk->scratch->tasks;
	struct bpf_sample *sample = &walk->scratch->whole.head;
	__u32 which = index >= BPF_TASK_ROOM, word = index;
	__u64 *task = tasks->words[which], at, value = 0;

	/* For the verifier, which does not see that they are bounded. */
	__asm__ volatile("%0 &= %1" : "+r"(word) : "i"(BPF_TASK_ROOM - 1));
	if (word >= BPF_TASK_WORDS)
		return 0;
	at = word ? task_word_at(walk->cpu, task, word) : walk->cpu->tasks[which];
	if (at && !read_space(&walk->scratch->space, walk->slots, at, &value, sizeof(value)))
		return 1;
	/* The kernel's own threads have no memory; all else has an address. */
	if (!at && word != BPF_TASK_PAGE_TABLE && !which)
		return 1;
	if (which && !word && (!value || value == tasks->words[0][BPF_TASK_AT])) {
		sample->flags |= BPF_TASKS_KNOWN;
		return 1;
	}
	task[word] = value;
	if (which && word == BPF_TASK_WORDS - 1)
		sample->flags |= BPF_TASKS_KNOWN;
	return 0;
}

static __always_inline void take_tasks(struct walk *walk, __u32 vm)
{
	struct scratch *scratch = walk->scratch;
	void *of_vm = bpf_map_lookup_elem(&cpus, &vm);
	__u32 id = scratch->whole.head.vcpu;

	walk->cpu = of_vm ? bpf_map_lookup_elem(of_vm, &id) : 0;
	if (!walk->cpu || !walk->cpu->cr3)
		return;
	/* Before all else: what is of this generation was there whole when it was set. */
	scratch->whole.head.generation = *(const volatile __u32 *)&walk->cpu->generation;
	__asm__ volatile("" ::: "memory");
	open_space(&scratch->space, walk->cpu->cr3, walk->cpu->levels);
	scratch->tasks.words[1][BPF_TASK_AT] = 0;
	bpf_loop(BPF_TASKS * BPF_TASK_ROOM, take_task_word, walk, 0);
}

/* What else of the guest's memory tells where it was. */
static __always_inline void look_around(struct scratch *scratch, __u32 vm, const struct bpf_vcpu *known)
{
	const struct bpf_sample *sample = &scratch->whole.head;
	__u32 zero = 0;
	void *of_vm = bpf_map_lookup_elem(&slots, &vm);
	struct walk walk = { .scratch = scratch, .slots = of_vm ? bpf_map_lookup_elem(of_vm, &zero) : 0 };

	if (!walk.slots)
		return;
	open_space(&scratch->space, sample->cr3, sample->cr4 & CR4_LA57 ? 5 : 4);
	if (!(sample->registers[BPF_RIP] >> 63))
		take_addresses(&walk, known->want_chains);
	else if (known->want_chains)
		take_stack(&walk);
	take_tasks(&walk, vm);
}

/* Puts the tasks behind the rest; the bytes that are behind the head. */
static __always_inline __u64 close_sample(struct scratch *scratch)
{
	struct bpf_whole_sample *whole = &scratch->whole;
	__u64 behind = whole->head.stack_size + whole->head.addresses * sizeof(struct bpf_address);

	if (!(whole->head.flags & BPF_TASKS_KNOWN))
		return behind;
	/* For the verifier, as above. */
	__asm__ volatile("%0 &= %1" : "+r"(behind) : "i"(2 * BPF_STACK_MAX - 1));
	bpf_probe_read_kernel(whole->stack + behind, sizeof(scratch->tasks), &scratch->tasks);
	return behind + sizeof(scratch->tasks);
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

/* Of struct kvm_vcpu_arch: what lies near the registers has been read along with them, as in all kernels. */
static __always_inline __u64 arch_word(const struct scratch *scratch, struct kvm_vcpu *vcpu, __u64 offset)
{
	__u64 place = offset - bpf_core_field_offset(struct kvm_vcpu, arch.regs), word = 0;

	if (place <= ARCH_SIZE - sizeof(word))
		return *(const __u64 *)&scratch->arch[place];
	bpf_probe_read_kernel(&word, sizeof(word), (void *)((__u64)vcpu + offset));
	return word;
}

#define ARCH_WORD(field) arch_word(scratch, vcpu, bpf_core_field_offset(struct kvm_vcpu, arch.field))

static __always_inline void take_guest(struct scratch *scratch, struct kvm_vcpu *vcpu)
{
	struct bpf_sample *sample = &scratch->whole.head;
	__u32 known;

	bpf_probe_read_kernel(scratch->arch, sizeof(scratch->arch),
			      (void *)((__u64)vcpu + bpf_core_field_offset(struct kvm_vcpu, arch.regs)));
	known = ARCH_WORD(regs_avail);
	sample->cr0 = ARCH_WORD(cr0);
	sample->cr4 = ARCH_WORD(cr4);
	sample->efer = ARCH_WORD(efer);
	__builtin_memcpy(sample->registers, scratch->arch, sizeof(sample->registers));
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
	__u32 handled = BPF_CORE_READ(vcpu, arch.handling_intr_from_guest);

	if (!handled || !bpf_core_enum_value_exists(enum kvm_intr_type, KVM_HANDLING_NMI))
		return handled;
	return by_nmi == (handled == bpf_core_enum_value(enum kvm_intr_type, KVM_HANDLING_NMI));
}

/* A VMM may have destroyed it, and made another, or none: what lies there now can be anything. The thread is
 * the current one, so it has its struct pid still. */
static __always_inline int is_same(struct kvm_vcpu *vcpu, const struct bpf_vcpu *known, __u32 tid)
{
	return tid == known->tid && (__u64)BPF_CORE_READ(vcpu, pid) == known->pid &&
	       (__u32)BPF_CORE_READ(vcpu, vcpu_id) == known->id;
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
	struct scratch *made = bpf_map_lookup_elem(&scratch, &zero);
	__u32 complete = BPF_RIP_KNOWN | BPF_RSP_KNOWN | BPF_CR3_KNOWN;
	struct bpf_sample *sample;
	struct kvm_vcpu *vcpu;
	__u64 behind;

	if (!known || !known->vcpu || !made)
		return 0;
	sample = &made->whole.head;
	vcpu = (void *)known->vcpu;
	sample->time = bpf_ktime_get_ns();
	sample->period = ctx->sample_period;
	sample->vcpu = known->id;
	sample->tid = known->inner_tid;
	sample->flags = sample->cpl = sample->addresses = sample->pages = sample->stack_size = 0;
	sample->cr3 = 0;
	sample->generation = 0;
	if (is_same(vcpu, known, tid) && is_in_guest(vcpu, !!known->by_nmi)) {
		sample->flags = BPF_IN_GUEST;
		have_rip_read(ctx, vcpu);
		take_guest(made, vcpu);
		if ((sample->flags & complete) == complete)
			look_around(made, vm, known);
		else if (known->want_chains)
			sample->flags |= BPF_CHAIN_CUT;
	} else {
		sample->registers[BPF_RIP] = ctx->regs.rip;
		sample->cpl = ctx->regs.cs & 3;
	}
	behind = close_sample(made);
	sample->cost = bpf_ktime_get_ns() - sample->time;
	put(&made->whole, behind, vm, known);
	return 0;
}
