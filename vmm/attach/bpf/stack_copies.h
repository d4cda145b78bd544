/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: copies of the stacks in use, from which the reader unwinds: that of the kernel, below it the
 * task's if an interrupt has one of its own, and the top of the user stack.
 */
#ifndef KVMSCOPE_ATTACH_BPF_STACK_COPIES_H
#define KVMSCOPE_ATTACH_BPF_STACK_COPIES_H

#include "vmm/attach/bpf/guest_memory.h"
#include "vmm/attach/bpf/guest_stack.h"
#include "vmm/attach/bpf/guest_tasks.h"

#define KERNEL_STACK_SIZE                                                                          \
	(16u << 10) /* arch/x86/include/asm/page_64_types.h, THREAD_SIZE and IRQ_STACK_SIZE */
#define COPY_PAGES_MAX (BPF_USER_STACK_MAX / 4096 + 1)
/* arch/x86/include/asm/segment.h, and thread_info.h, TOP_OF_KERNEL_STACK_PADDING */
#define CS_USER      0x33
#define CS_USER32    0x23
#define FRED_PADDING 16

static long copy_page(__u32 turn, void *context)
{
	const struct walk *walk = context;
	struct copy *copy = &walk->scratch->copy;
	__u64 at = copy->at, size = 4096 - (copy->gva & 4095);

	if (size > copy->left)
		size = copy->left;
	if (!size || at > BPF_STACKS_MAX)
		return 1;
	BOUND(size, 8191);
	if (!read_space(&walk->scratch->space, &walk->scratch->vcpu.slots, copy->gva,
			walk->sample->stack + at, size))
		return 1;
	copy->gva += size;
	copy->left -= size;
	copy->at = at + size;
	return 0;
}

/* Copies up to SIZE bytes at GVA; what follows an unreadable page is left out. */
static __always_inline void copy_stack(struct walk *walk, enum bpf_stack_kind kind, __u64 gva,
				       __u64 size)
{
	struct bpf_stack *stack = &walk->sample->head.stacks[kind];
	struct copy *copy = &walk->scratch->copy;

	stack->gva = gva;
	stack->at = walk->sample->head.copied;
	copy->gva = gva;
	copy->left = size;
	copy->at = stack->at;
	bpf_loop(COPY_PAGES_MAX, copy_page, walk, 0);
	stack->size = copy->gva - gva;
	walk->sample->head.copied = (copy->at + 7) & ~7ull;
}

static __always_inline __u64 at_most(__u64 value, __u64 most)
{
	return value < most ? value : most;
}

static __always_inline void begin_copies(struct walk *walk)
{
	struct bpf_whole_sample *sample = walk->sample;

	for (__u32 i = 0; i < BPF_STACKS; i++)
		sample->head.stacks[i].size = sample->head.stacks[i].at = 0;
	sample->head.addresses = 1;
	sample->code.gva = 0;
	sample->code.page = BPF_NO_PAGE;
	walk->scratch->code.gva = 1; /* not a page address */
}

/* True if the reader can unwind the user stack of the current task. */
static __always_inline int has_user_stack(const struct walk *walk)
{
	const struct bpf_sample *sample = &walk->sample->head;

	return sample->flags & BPF_TASKS_KNOWN && sample->flags & BPF_CR3_KNOWN &&
	       sample->flags & BPF_RSP_KNOWN && walk->scratch->vcpu.cpu.copies &&
	       sample->tasks.words[0][BPF_TASK_MM];
}

static __always_inline void copy_user_stack(struct walk *walk, __u64 rip, __u64 rsp)
{
	__u64 mm = walk->sample->head.tasks.words[0][BPF_TASK_MM], size = BPF_USER_STACK_FIRST;
	__u64 known =
		*(const volatile __u64 *)&walk->scratch->vcpu.user_stacks[BPF_USER_STACK_INDEX(mm)];

	if ((known ^ mm << 16) < 1u << 16)
		size = at_most(known & 0xffff, BPF_USER_STACK_MAX);
	walk->sample->code.gva = rip;
	walk->sample->code.page = code_page(walk, rip);
	copy_stack(walk, BPF_STACK_USER, rsp, size);
}

/* Reads what the CPU pushed when it entered the kernel from the user code of the current task. */
static __always_inline int read_entry_frame(struct walk *walk)
{
	struct scratch *scratch = walk->scratch;
	const struct bpf_cpu *cpu = &scratch->vcpu.cpu;
	__u64 *frame = scratch->frame, size = sizeof(scratch->frame);
	__u64 top = walk->sample->head.tasks.words[0][BPF_TASK_STACK] + cpu->stack_size;

	for (__u32 i = 0; i < 2; i++) {
		if (!read_space(&scratch->space, &scratch->vcpu.slots,
				top - i * FRED_PADDING - size, frame, size))
			return 0;
		if ((frame[1] & 0xffff) == CS_USER || (frame[1] & 0xffff) == CS_USER32)
			return 1;
	}
	return 0;
}

/* Copies the task's stack from where the interrupt left it, which is in the last word of the
 * interrupt's (kernel: arch/x86/include/asm/irq_stack.h). */
static __always_inline void copy_stack_below(struct walk *walk, __u64 irq_top)
{
	struct scratch *scratch = walk->scratch;
	__u64 start = walk->sample->head.tasks.words[0][BPF_TASK_STACK];
	__u64 size = scratch->vcpu.cpu.stack_size, rsp;

	if (!read_space(&scratch->space, &scratch->vcpu.slots, irq_top - 8, scratch->frame, 8))
		return;
	rsp = scratch->frame[0];
	if (rsp - start < size)
		copy_stack(walk, BPF_STACK_BELOW, rsp,
			   at_most(start + size - rsp, BPF_KERNEL_STACK_MAX));
}

/* Does not use the page tables of the known kernel, which may no longer run. A stack of unknown
 * size is aligned to it. */
static __always_inline void copy_kernel_stacks(struct walk *walk)
{
	const struct bpf_sample *sample = &walk->sample->head;
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;
	__u64 rsp = sample->rsp, size = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u64 left = cpu->irq_top - rsp;
	int on_irq_stack = sample->flags & BPF_TASKS_KNOWN && left <= KERNEL_STACK_SIZE;

	copy_stack(walk, BPF_STACK_IN_USE, rsp,
		   at_most(on_irq_stack ? left : size, BPF_KERNEL_STACK_MAX));
	if (on_irq_stack)
		copy_stack_below(walk, cpu->irq_top);
}

/* Copies the stacks of kernel code. */
static __always_inline void copy_stacks(struct walk *walk)
{
	struct bpf_sample *sample = &walk->sample->head;

	if (!(sample->flags & BPF_CR3_KNOWN)) {
		sample->flags |= BPF_CHAIN_CUT;
		return;
	}
	begin_copies(walk);
	copy_kernel_stacks(walk);
	if (has_user_stack(walk) && read_entry_frame(walk))
		copy_user_stack(walk, walk->scratch->frame[0], walk->scratch->frame[3]);
}

#endif
