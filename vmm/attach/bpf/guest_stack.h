/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: the callers of a guest's code: frame pointers of user space, the kernel's stack as it is. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_STACK_H
#define KVMSCOPE_ATTACH_BPF_GUEST_STACK_H

#include "vmm/attach/bpf/scratch.h"

#define USER_FRAME_MAX (1ull << 20) /* bytes, as the other unwinders have it */
#define KERNEL_STACK_SIZE                                                                          \
	(16u << 10) /* arch/x86/include/asm/page_64_types.h, THREAD_SIZE and IRQ_STACK_SIZE */

/* Both words are in the page that is read, and the kernel has that. */
static __always_inline int is_mapped(const struct space *space, __u64 frame)
{
	return state_of(space) && space->page_at && space->page == frame >> PAGE_SHIFT &&
	       (frame & 0xfff) <= 4096 - 16;
}

/* The window from the frame on, which has both its words though a page ends between them; or the
 * frame is where the kernel has it. */
static __always_inline int move_window(struct space *space, const struct bpf_slots *all,
				       struct chain *chain)
{
	__u64 size;

	if (!space || !all || !chain)
		return 0;
	size = 4096 - (chain->frame & 0xfff);
	chain->words = 0;
	if (!open_page(space, all, chain->frame))
		return 0;
	if (is_mapped(space, chain->frame))
		return 1;
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

/* The page of code at GVA: mostly that of the last one. It serves to look up what is mapped there,
 * which is done for a task that is known alone. */
static __always_inline __u64 code_page(const struct walk *walk, __u64 gva)
{
	struct scratch *scratch = walk->scratch;
	struct bpf_address *code = &scratch->code;

	if (!(walk->sample->head.flags & BPF_TASKS_KNOWN))
		return BPF_NO_PAGE;
	gva &= ~0xfffull;
	if (gva != code->gva) {
		code->gva = gva;
		code->page = gpa_of(&scratch->space, &scratch->vcpu.slots, gva);
	}
	return code->page;
}

enum frame { FRAME_READ, FRAME_LAST, FRAME_INVALID, FRAME_OUTSIDE };

/*
 * A frame: the caller's RBP, and above it where it goes on. The outermost has RBP 0. Stacks grow
 * down: the caller's frame lies higher, within reach; else RBP is no frame pointer but any number.
 * So it is where the two words are those of 32-bit code, read as one: its stack is below 4 GiB,
 * where the frames of 64-bit code lead no higher. kvm_intel has CS in the VMCS alone.
 */
static __always_inline enum frame read_frame(const struct walk *walk)
{
	const struct space *space = &walk->scratch->space;
	struct chain *chain = &walk->scratch->chain;
	struct bpf_whole_sample *sample = walk->sample;
	__u64 frame = chain->frame, place = (frame - chain->window) / 8, next, caller;
	__u32 index = sample->head.addresses;

	if (!frame || index > BPF_CHAIN_MAX)
		return FRAME_LAST;
	if (frame & 7 || frame >= chain->end || frame - chain->below > USER_FRAME_MAX)
		return FRAME_INVALID;
	if (is_mapped(space, frame)) {
		__u64 at = space->page_at + (frame & 0xfff);

		next = kernel_word(at);
		caller = kernel_word(at + 8); /* where it can not be read 0, and the chain is cut */
	} else if (place + 2 <= chain->words) {
		BOUND(place, WINDOW / 8 - 1);
		next = chain->stack[place];
		caller = chain->stack[place + 1];
	} else {
		return FRAME_OUTSIDE;
	}
	if (!caller || caller >= chain->end || (next >> 32 && !(frame >> 32)))
		return FRAME_INVALID;
	BOUND(index, BPF_CHAIN_MAX);
	sample->addresses[index].gva = caller;
	sample->addresses[index].page = code_page(walk, caller);
	sample->head.addresses = index + 1;
	chain->below = frame + 16;
	chain->frame = next;
	return FRAME_READ;
}

/* Those of the window, and a new one for the next, if there is one. */
static long read_frames(__u32 turn, void *context)
{
	const struct walk *walk = context;
	struct scratch *scratch = walk->scratch;
	enum frame frame = FRAME_READ;

	for (__u32 i = 0; i < WINDOW / 16 && frame == FRAME_READ; i++)
		frame = read_frame(walk);
	if (frame == FRAME_READ || frame == FRAME_LAST)
		return frame == FRAME_LAST;
	if (frame == FRAME_OUTSIDE &&
	    move_window(&scratch->space, &scratch->vcpu.slots, &scratch->chain))
		return 0;
	walk->sample->head.flags |= BPF_CHAIN_CUT;
	return 1;
}

/* Frames of 32-bit code are others. */
static __always_inline void read_chain(struct walk *walk)
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
	bpf_loop(2 * BPF_CHAIN_MAX, read_frames, walk, 0);
	if (sample->addresses == BPF_ADDRESSES_MAX && chain->frame)
		sample->flags |= BPF_CHAIN_CUT;
}

/* To the end of the kernel's stack, which lies at a multiple of its size, as far as there is room:
 * in two pages at most. Not by the page tables of the kernel that is known: it may be the one
 * before. */
static __always_inline void read_stack(struct walk *walk)
{
	struct bpf_whole_sample *sample = walk->sample;
	struct space *space = &walk->scratch->space;
	__u64 rsp = sample->head.rsp;
	__u32 whole = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u32 first = 4096 - (rsp & 4095), second;

	if (!(sample->head.flags & BPF_CR3_KNOWN)) {
		sample->head.flags |= BPF_CHAIN_CUT;
		return;
	}
	if (whole > BPF_STACK_MAX)
		whole = BPF_STACK_MAX;
	if (first > whole)
		first = whole;
	second = whole - first;
	if (first > BPF_STACK_MAX ||
	    !read_space(space, &walk->scratch->vcpu.slots, rsp, sample->stack, first))
		return;
	sample->head.stack_size = first;
	BOUND(second, BPF_STACK_MAX - 1);
	if (second && read_space(space, &walk->scratch->vcpu.slots, rsp + first,
				 sample->stack + first, second))
		sample->head.stack_size = whole;
}

/* RIP, its callers if they are wanted, and their pages: whether the code is still there later tells
 * whether what is mapped there then was so now. */
static __always_inline void read_addresses(struct walk *walk, int callers)
{
	struct bpf_whole_sample *sample = walk->sample;

	walk->scratch->code.gva = 1; /* no page's */
	sample->addresses[0].gva = sample->head.rip;
	sample->addresses[0].page = code_page(walk, sample->head.rip);
	sample->head.addresses = 1;
	if (callers)
		read_chain(walk);
}

#endif
