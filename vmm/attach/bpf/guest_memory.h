/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: guest memory, through the guest's page tables and the VMM's address space, which is the
 * current one.
 *
 * A read of the VMM's memory by BPF's helper takes as long as a hundred instructions. So once a
 * word was read by it, and the kernel has the same one where the VMM's page tables say
 * (host_page.h), it is read there, as long as KVM says that nothing has moved (guest_mappings.h).
 * What can not be read there is 0, which is believed nowhere by itself.
 *
 * The functions of BPF, and can_cast, are whoever's that includes this.
 */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_MEMORY_H
#define KVMSCOPE_ATTACH_BPF_GUEST_MEMORY_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf/host_page.h"
#include "vmm/attach/bpf/verified_once.h"

#define PAGE_SHIFT 12
/* What an entry of the last but one table maps, and how many of them are remembered: of code that
 * is called from one image to another and back, of a stack, and of the kernel's tasks. */
#define REGION_BITS 21
#define REGIONS     8
#define PAGES       8  /* of data that are remembered */
#define MAPPED_MAX  64 /* bytes that are read word by word */
#define NO_REGION   (~0ull)
#define LEVELS      5

/*
 * What one entry of the guest's page tables maps, or whose table is there: 2 MiB of a space. It is
 * remembered from one sample to the next, with all entries that it was found by: before it is used
 * again they are read again, where they were. So it is as true as if it was looked for, and none of
 * these reads has to wait for the one before.
 */
struct region {
	__u64 number; /* GVA / 2 MiB; NO_REGION: none */
	__u64 entry;
	__u64 cr3;          /* of the space */
	__u32 bits;         /* of the page that ENTRY maps; 0: it is a table's */
	__u32 turn;         /* of the space that it was found or read again in */
	__u32 slots;        /* generation of those by which it was found */
	__u32 levels;       /* of that space */
	__u64 mapped;       /* the state of the VMM's memory in which AT is true; 0: none */
	__u64 table_mapped; /* so of TABLE */
	__u64 table;        /* where the kernel has the table of ENTRY */
	__u64 at[LEVELS -
		 1]; /* where the kernel has the entries; 0, with a WORD of 0: there is none */
	__u64 word[LEVELS - 1];
	__u64 hva[LEVELS - 1];
};

/* A page of the guest, and where the kernel has it in the state MAPPED of the VMM's memory. */
struct page {
	__u64 gpa, hva, at, mapped;
};

/* Of the VMM's memory: what tells whether it is where it was. */
struct mappings {
	__u64 kvm;           /* kernel address of the struct kvm */
	__u64 invalidations; /* as KVM counts them */
	__u64 slots;         /* generation of KVM's memslots */
	__u64 exits;         /* of the vCPU, when it was looked at last */
	__u64 pgd;           /* kernel address of the page tables */
	__u64 state;         /* another one whenever that changes */
};

/* An address space of the guest, and the page of it that was read last. */
struct space {
	__u64 cr3;
	__u64 page, page_hva; /* the GVA's page number; 0: there is none */
	__u64 page_gpa;       /* with a page_hva */
	__u64 page_at;        /* where the kernel has it; 0: that is not known */
	__u64 state; /* of the VMM's memory, in which what is known of it is true; 0: nothing is */
	__u32 levels;
	__u32 turn; /* a space of now; never the same again for a long time */
	struct mappings mappings;
	/* Of each level the entry that was read last in this turn: regions next to each other share
	 * them. */
	__u64 hva[LEVELS - 1], word[LEVELS - 1];
	struct page pages[PAGES];
	struct region regions[REGIONS];
};

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

static __always_inline __u64 entry_hva(const struct bpf_slots *all, __u64 table, __u64 gva,
				       __u32 shift)
{
	return hva_of(all, (table & PTE_ADDRESS) + ((gva >> (shift & 63)) & 511) * 8);
}

/* The entry at HVA; 0: it can not be read, or is not present. */
static __always_inline __u64 read_entry(__u64 hva)
{
	__u64 entry = 0;

	if (!hva || bpf_probe_read_user(&entry, sizeof(entry), (void *)hva) ||
	    !(entry & PTE_PRESENT))
		return 0;
	return entry;
}

/* The regions' own numbers are of the sample before. */
static __always_inline void open_space(struct space *space, __u64 cr3, __u32 levels)
{
	space->cr3 = cr3;
	space->levels = levels;
	space->page_hva = space->page_at = 0;
	space->turn++;
	for (__u32 level = 0; level < LEVELS - 1; level++)
		space->hva[level] = 0;
}

/* Down to the last but one table, by the slots of GENERATION, if they are still those; 0: nothing
 * is there.
 */
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

/* What the entry of LEVEL at HVA is in this turn. */
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

/* Of the VMM's memory. The verifier does not follow what a kernel without casts has no use for. */
static __always_inline __u64 state_of(const struct space *space)
{
	return can_cast ? space->state : 0;
}

/* Where the kernel has WORD, which was just read at HVA; 0: that is not known. */
static __always_inline __u64 kernel_address(const struct space *space, __u64 hva, __u64 word)
{
	__u64 page = state_of(space) && word ? host_page(space->mappings.pgd, hva) : 0;
	__u64 at = page + (hva & 0xfff);

	return page && kernel_word(at) == word ? at : 0;
}

static __always_inline void remember_region(const struct space *space, struct region *region)
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

/* As is_true(), of a region that the kernel's addresses are not known of. */
VERIFIED_ONCE int is_true_by_hva(struct space *space, struct region *region)
{
	__u64 changed = 0;

	if (!space || !region)
		return 0;
	for (__u32 level = 0; level < LEVELS - 1; level++)
		if (region->hva[level])
			changed |= word_at(space, level, region->hva[level]) ^ region->word[level];
	if (!changed)
		remember_region(space, region);
	return !changed;
}

/* All that it was found by is there still. */
static __always_inline int is_true(struct space *space, struct region *region)
{
	__u64 changed = 0;

	if (region->cr3 != space->cr3 || region->levels != space->levels)
		return 0;
	if (!state_of(space) || region->mapped != space->state)
		return is_true_by_hva(space, region);
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

/* The entry of the last table; 0: none is present. */
static __always_inline __u64 leaf_of(struct space *space, const struct bpf_slots *all,
				     struct region *region, __u64 gva)
{
	__u64 entry = 0;

	if (state_of(space) && region->table_mapped == space->state)
		entry = kernel_word(region->table + ((gva >> PAGE_SHIFT) & 511) * 8);
	return entry & PTE_PRESENT ? entry : read_leaf(space, all, region, gva);
}

/*
 * The GPA of the page that GVA is in; BPF_NO_PAGE: none, or the slots change meanwhile. SDM vol.
 * 3A 4.5. While a sample is taken the vCPU stands still, so what the upper levels say is true for
 * all of it.
 *
 * Whether user code may go there (U/S, and NX for callers) is not asked. Only addresses of the
 * lower half are looked for as user space, where Linux maps nothing that is the kernel's alone; and
 * of kernels that do run there the level is not always known, and their callers are wanted, too.
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
	    (region->turn != space->turn && !is_true(space, region))) {
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

/* Makes the page of GVA the one that is read. */
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

/*
 * The page that is read, in which WORD was just read at GVA: by the GPA that it was opened by, as
 * another vCPU may have mapped another page since.
 */
static __always_inline void remember_page(struct space *space, __u64 gva, __u64 word)
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

/* Some whole words where the kernel has the page. True: one is not 0, so the page can be read
 * there. */
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

/* SIZE bytes that are in one page. */
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
		remember_page(space, gva, *(const __u64 *)to);
	return 1;
}

#endif
