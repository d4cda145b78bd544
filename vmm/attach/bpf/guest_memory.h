/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: reads guest memory, through the guest's page tables and the VMM's address space, which is
 * the current one.
 *
 * Reading the VMM's memory with a BPF helper takes as long as a hundred instructions. So if a word
 * that was read that way is also found in the direct map, where the VMM's page tables point to
 * (host_page.h), later reads use the direct map, as long as KVM reports no change of the mappings
 * (guest_mappings.h). An unreadable word is 0 there, so that 0 is always checked by the helper.
 *
 * The includer supplies the BPF functions and can_cast.
 */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_MEMORY_H
#define KVMSCOPE_ATTACH_BPF_GUEST_MEMORY_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/host_page.h"
#include "vmm/attach/bpf/verified_once.h"

#define PAGE_SHIFT 12
/* Size of what an entry of the last but one table maps, and the number of cached ones: for code
 * that is called across images, a stack, and the kernel's tasks. */
#define REGION_BITS 21
#define REGIONS     8
#define PAGES       8  /* cached data pages */
#define MAPPED_MAX  64 /* bytes that are read word by word */
#define NO_REGION   (~0ull)
#define LEVELS      5

/*
 * A cached walk: 2 MiB of an address space, mapped by one entry or by the last table. It is kept
 * across samples with all entries of the walk, which are read again before it is used. So it is as
 * current as a new walk, and the reads do not depend on each other.
 */
struct region {
	__u64 number; /* GVA / 2 MiB; NO_REGION: unused */
	__u64 entry;
	__u64 cr3;            /* of the address space */
	__u32 bits;           /* of the page that ENTRY maps; 0: ENTRY points to a table */
	__u32 turn;           /* of the address space when the walk was last verified */
	__u32 slots;          /* generation of the slots that were used */
	__u32 levels;         /* of the address space */
	__u64 mapped;         /* state of the VMM's memory in which AT is valid; 0: none */
	__u64 table_mapped;   /* the same for TABLE */
	__u64 table;          /* kernel address of the table of ENTRY */
	__u64 at[LEVELS - 1]; /* kernel addresses of the entries; 0, with a WORD of 0: unused */
	__u64 word[LEVELS - 1];
	__u64 hva[LEVELS - 1];
};

/* A guest page, and its kernel address in the state MAPPED of the VMM's memory. */
struct page {
	__u64 gpa, hva, at, mapped;
};

/* What detects changes of the VMM's memory mappings. */
struct mappings {
	__u64 kvm;           /* kernel address of the struct kvm */
	__u64 invalidations; /* KVM's counter */
	__u64 slots;         /* generation of KVM's memslots */
	__u64 exits;         /* of the vCPU, at the last sample */
	__u64 pgd;           /* kernel address of the page tables */
	__u64 state;         /* incremented at each change */
};

/* An address space of the guest, and the page that was read last. */
struct space {
	__u64 cr3;
	__u64 page, page_hva; /* page number of the GVA; page_hva 0: none */
	__u64 page_gpa;       /* if page_hva is set */
	__u64 page_at;        /* kernel address; 0: unknown */
	__u64 state;          /* of the VMM's memory, in which the cache is valid; 0: not at all */
	__u32 levels;
	__u32 turn; /* number of this address space's use; does not repeat for a long time */
	struct mappings mappings;
	/* The entry of each level that was read last in this turn: neighboring regions share
	 * them. */
	__u64 hva[LEVELS - 1], word[LEVELS - 1];
	struct page pages[PAGES];
	struct region regions[REGIONS];
};

#define PTE_PRESENT 1ull
#define PTE_LARGE   (1ull << 7)
#define PTE_ADDRESS 0x000ffffffffff000ull
#define CR4_LA57    (1ull << 12)

/* Reads of ALL between two calls that return the same even number are consistent. */
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

static __always_inline __u64 entry_hva(const struct bpf_slots *all, __u64 table, __u64 gva,
				       __u32 shift)
{
	return hva_of(all, (table & PTE_ADDRESS) + ((gva >> (shift & 63)) & 511) * 8);
}

/* Reads the entry at HVA; 0: unreadable, or not present. */
static __always_inline __u64 read_entry(__u64 hva)
{
	__u64 entry = 0;

	if (!hva || bpf_probe_read_user(&entry, sizeof(entry), (void *)hva) ||
	    !(entry & PTE_PRESENT))
		return 0;
	return entry;
}

/* The cached regions keep the turn of their last use. */
static __always_inline void open_space(struct space *space, __u64 cr3, __u32 levels)
{
	space->cr3 = cr3;
	space->levels = levels;
	space->page_hva = space->page_at = 0;
	space->turn++;
	for (__u32 level = 0; level < LEVELS - 1; level++)
		space->hva[level] = 0;
}

/* Walks down to the last but one table, with the slots of GENERATION; 0: not mapped. */
VERIFIED_ONCE int walk_to_region(struct space *space, const struct bpf_slots *all, __u64 gva,
				 struct region *region, __u32 generation)
{
	__u64 entry, hva;
	__u32 shift;

	if (!space || !all || !region)
		return 0;
	entry = space->cr3;
	region->number = NO_REGION;
	region->bits = 0;
	region->mapped = region->table_mapped = 0;
	for (__u32 level = 0; level < LEVELS - 1; level++)
		region->hva[level] = region->word[level] = 0;
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
		if (shift <= 30 && entry & PTE_LARGE) {
			region->bits = shift;
			break;
		}
	}
	region->entry = entry;
	region->levels = space->levels;
	region->cr3 = space->cr3;
	region->slots = generation;
	region->turn = space->turn;
	region->number = gva >> REGION_BITS;
	return 1;
}

/* Reads the entry of LEVEL at HVA, once per turn. */
static __always_inline __u64 word_at(struct space *space, __u32 level, __u64 hva)
{
	__u64 word = 0;

	if (space->hva[level] == hva)
		return space->word[level];
	bpf_probe_read_user(&word, sizeof(word), (void *)hva);
	space->hva[level] = hva;
	space->word[level] = word;
	return word;
}

/* Constant for kernels without casts, so that the verifier skips unused paths. */
static __always_inline __u64 state_of(const struct space *space)
{
	return can_cast ? space->state : 0;
}

/* The kernel address of WORD, which was just read at HVA; 0: unknown. */
static __always_inline __u64 kernel_address(const struct space *space, __u64 hva, __u64 word)
{
	__u64 page = state_of(space) && word ? host_page(space->mappings.pgd, hva) : 0;
	__u64 at = page + (hva & 0xfff);

	return page && kernel_word(at) == word ? at : 0;
}

static __always_inline void cache_region(const struct space *space, struct region *region)
{
	for (__u32 level = 0; level < LEVELS - 1; level++) {
		region->at[level] = 0;
		if (!region->hva[level])
			continue;
		region->at[level] = kernel_address(space, region->hva[level], region->word[level]);
		if (!region->at[level])
			return;
	}
	region->mapped = space->state;
}

/* As is_unchanged(), for a region without kernel addresses. */
VERIFIED_ONCE int is_unchanged_by_hva(struct space *space, struct region *region)
{
	__u64 changed = 0;

	if (!space || !region)
		return 0;
	for (__u32 level = 0; level < LEVELS - 1; level++)
		if (region->hva[level])
			changed |= word_at(space, level, region->hva[level]) ^ region->word[level];
	if (!changed)
		cache_region(space, region);
	return !changed;
}

/* True if all entries of the cached walk are unchanged. */
static __always_inline int is_unchanged(struct space *space, struct region *region)
{
	__u64 changed = 0;

	if (region->cr3 != space->cr3 || region->levels != space->levels)
		return 0;
	if (!state_of(space) || region->mapped != space->state)
		return is_unchanged_by_hva(space, region);
	for (__u32 level = 0; level < LEVELS - 1; level++)
		changed |= kernel_word(region->at[level]) ^ region->word[level];
	return !changed;
}

VERIFIED_ONCE __u64 read_leaf(struct space *space, const struct bpf_slots *all,
			      struct region *region, __u64 gva)
{
	__u64 hva, entry, at;

	if (!space || !all || !region)
		return 0;
	hva = entry_hva(all, region->entry, gva, PAGE_SHIFT);
	entry = read_entry(hva);
	at = kernel_address(space, hva, entry);
	if (at) {
		region->table = at & ~0xfffull;
		region->table_mapped = space->state;
	}
	return entry;
}

/* The entry of the last table; 0: not present. */
static __always_inline __u64 leaf_of(struct space *space, const struct bpf_slots *all,
				     struct region *region, __u64 gva)
{
	__u64 entry = 0;

	if (state_of(space) && region->table_mapped == space->state)
		entry = kernel_word(region->table + ((gva >> PAGE_SHIFT) & 511) * 8);
	return entry & PTE_PRESENT ? entry : read_leaf(space, all, region, gva);
}

/*
 * The GPA of GVA's page; BPF_NO_PAGE: not mapped, or the slots are changing. SDM vol. 3A 4.5. The
 * vCPU is stopped during a sample, so the upper levels stay valid for all of it.
 *
 * Access rights (U/S, and NX for callers) are not checked: only addresses in the lower half are
 * looked up as user space, and Linux maps no kernel memory there. For other kernels that run there
 * the level is not always known, and their callers are sampled, too.
 */
static __always_inline __u64 gpa_of(struct space *space, const struct bpf_slots *all, __u64 gva)
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
	    (region->turn != space->turn && !is_unchanged(space, region))) {
		if (!walk_to_region(space, all, gva, region, generation))
			return BPF_NO_PAGE;
	}
	region->turn = space->turn;
	entry = region->entry;
	bits = region->bits;
	if (!bits) {
		bits = PAGE_SHIFT;
		entry = leaf_of(space, all, region, gva);
		if (!entry)
			return BPF_NO_PAGE;
	}
	if (generation_of(all) != generation)
		return BPF_NO_PAGE;
	mask = (1ull << (bits & 63)) - 1;
	return ((entry & PTE_ADDRESS & ~mask) | (gva & mask)) & ~0xfffull;
}

static __always_inline struct page *page_for(struct space *space, __u64 gva)
{
	return &space->pages[(gva >> PAGE_SHIFT) & (PAGES - 1)];
}

/* Makes the page of GVA the current one. */
static __always_inline int open_page(struct space *space, const struct bpf_slots *all, __u64 gva)
{
	__u32 generation;
	struct page *page;
	__u64 gpa;

	if (space->page_hva && space->page == gva >> PAGE_SHIFT)
		return 1;
	generation = generation_of(all);
	gpa = gpa_of(space, all, gva);
	page = page_for(space, gva);
	space->page = gva >> PAGE_SHIFT;
	space->page_gpa = gpa;
	space->page_hva = space->page_at = 0;
	if (state_of(space) && page->mapped == space->state && page->gpa == gpa) {
		space->page_hva = page->hva;
		space->page_at = page->at;
	} else if (gpa != BPF_NO_PAGE) {
		__u64 hva = hva_of(all, gpa);

		space->page_hva = generation_of(all) == generation ? hva : 0;
	}
	return !!space->page_hva;
}

/* Caches the current page after WORD was read at GVA, by the GPA that it was opened with:
 * another vCPU may have remapped the GVA since. */
static __always_inline void cache_page(struct space *space, __u64 gva, __u64 word)
{
	__u64 at = kernel_address(space, space->page_hva + (gva & 0xfff), word);
	struct page *page = page_for(space, gva);

	if (!at)
		return;
	page->gpa = space->page_gpa;
	page->hva = space->page_hva;
	page->at = space->page_at = at & ~0xfffull;
	page->mapped = space->state;
}

/* Reads whole words through the direct map. True: one is not 0, so the page is readable there. */
static __always_inline int read_mapped(const struct space *space, __u64 gva, __u64 *to, __u32 size)
{
	__u64 at = space->page_at + (gva & 0xfff), any = 0;

	if (!state_of(space) || !space->page_at || size > MAPPED_MAX || (gva | size) & 7)
		return 0;
	for (__u32 i = 0; i < MAPPED_MAX / sizeof(__u64) && i * sizeof(__u64) < size; i++) {
		to[i] = kernel_word(at + i * sizeof(__u64));
		any |= to[i];
	}
	return !!any;
}

/* Reads SIZE bytes within one page. */
static __noinline int read_space(struct space *space, const struct bpf_slots *all, __u64 gva,
				 void *to, __u32 size)
{
	if (!space || !all || !to || !open_page(space, all, gva))
		return 0;
	if (read_mapped(space, gva, to, size))
		return 1;
	if (bpf_probe_read_user(to, size, (void *)(space->page_hva + (gva & 0xfff))))
		return 0;
	if (state_of(space) && !space->page_at && !(gva & 7) && size >= sizeof(__u64))
		cache_page(space, gva, *(const __u64 *)to);
	return 1;
}

/* Upper bound of the part of struct kvm_vcpu_arch that is read at once. */
#define ARCH_SIZE 256
/* Bytes of the stack that are read at once: most frames are smaller, and each cache line counts. */
#define WINDOW 128
/* Limits VALUE to an array size or MASK, which the verifier cannot derive. */
#ifdef __bpf__
#define BOUND(value, mask) __asm__ volatile("%0 &= %1" : "+r"(value) : "i"(mask))
#else
#define BOUND(value, mask) ((value) &= (mask))
#endif

/* A walk of frame pointers. */
struct chain {
	__u64 frame;
	__u64 below;                 /* lower bound of the frame's address */
	__u64 end;                   /* of user space */
	__u64 window, words;         /* of the stack: GVA, and number of words read */
	__u64 stack[WINDOW / 8 + 1]; /* one more word for the verifier */
};

/* What is left to copy of a stack. */
struct copy {
	__u64 gva;
	__u64 left, at; /* bytes; AT: the offset in the copies */
};

#define ENTRY_FRAME 5 /* words that the CPU pushes when it enters the kernel */

/* A vCPU and the state of its current sample. It is not on the stack, where the verifier would
 * track each value. */
struct scratch {
	struct bpf_vcpu vcpu;
	struct space space;
	struct bpf_address code; /* the last one */
	struct chain chain;
	struct copy copy;
	__u64 wakes;   /* the sample needs the reader soon */
	__u64 task;    /* index of the task whose stacks are copied */
	__u64 counted; /* of the event: part of samples so far */
	__u64 frame[ENTRY_FRAME];
	__u8 arch[ARCH_SIZE]; /* of the vCPU's state, from the registers on */
};

/* Context of a bpf_loop() walk, which has to be on the stack. */
struct walk {
	struct scratch *scratch;
	struct bpf_whole_sample *sample;
};

#endif
