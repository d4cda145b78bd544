/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: user call chains by frame pointers. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_STACK_H
#define KVMSCOPE_ATTACH_BPF_GUEST_STACK_H

#include "vmm/attach/bpf/guest_memory.h"

#define USER_FRAME_MAX (1ull << 20) /* bytes, as in the other unwinders */

/* True if both words are in the current page, and its kernel address is known. */
static __always_inline int is_mapped(const struct space *space, __u64 frame)
{
	return state_of(space) && space->page_at && space->page == frame >> PAGE_SHIFT &&
	       (frame & 0xfff) <= 4096 - 16;
}

/* Moves the window to the frame, with both words even if a page ends between them. Not needed if
 * the frame is readable through the direct map. */
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

/* The page of the code at GVA, mostly that of the previous address. It is used to find the
 * mapping, which needs a known task. */
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
 * Reads a frame: the caller's RBP, and above it the return address. The outermost frame has RBP 0.
 * Stacks grow down, so the caller's frame is higher, within reach; otherwise RBP is not a frame
 * pointer. Two words of 32-bit code read as one are detected, too: its stack is below 4 GiB, from
 * where 64-bit frames lead no higher. kvm_intel has CS only in the VMCS.
 */
static __always_inline enum frame read_frame(const struct walk *walk)
{
	const struct space *space = &walk->scratch->space;
	struct chain *chain = &walk->scratch->chain;
	struct bpf_whole_sample *sample = walk->sample;
	__u64 frame = chain->frame, index_of_frame = (frame - chain->window) / 8, next, caller;
	__u32 index = sample->head.addresses;

	if (!frame || index > BPF_CHAIN_MAX)
		return FRAME_LAST;
	if (frame & 7 || frame >= chain->end || frame - chain->below > USER_FRAME_MAX)
		return FRAME_INVALID;
	if (is_mapped(space, frame)) {
		__u64 at = space->page_at + (frame & 0xfff);

		next = kernel_word(at);
		caller = kernel_word(at + 8); /* unreadable: 0, and the chain is cut */
	} else if (index_of_frame + 2 <= chain->words) {
		BOUND(index_of_frame, WINDOW / 8 - 1);
		next = chain->stack[index_of_frame];
		caller = chain->stack[index_of_frame + 1];
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

/* Reads the frames in the window, and moves it for the next one. */
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

/* 32-bit code has other frames. */
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

/* Records RIP, its callers if requested, and their pages: if the pages are unchanged later, so
 * are the mappings that are found then. */
static __always_inline void read_addresses(struct walk *walk, int callers)
{
	struct bpf_whole_sample *sample = walk->sample;

	walk->scratch->code.gva = 1; /* not a page address */
	sample->addresses[0].gva = sample->head.rip;
	sample->addresses[0].page = code_page(walk, sample->head.rip);
	sample->head.addresses = 1;
	if (callers)
		read_chain(walk);
}

#endif
