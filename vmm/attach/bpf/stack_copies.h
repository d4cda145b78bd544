/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * BPF: copies of the stacks in use, from which the reader unwinds: that of the kernel, below it the
 * interrupted one if an entry, exception or interrupt has one of its own, and the top of the user
 * stack.
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
#define CS_KERNEL    0x10
#define CS_USER      0x33
#define CS_USER32    0x23
#define FRED_PADDING 16
/* Entry and exception stacks of all CPUs (arch/x86/include/asm/pgtable_areas.h,
 * CPU_ENTRY_AREA_BASE). */
#define ENTRY_AREA      0xfffffe0000000000ull
#define ENTRY_AREA_SIZE (1ull << 39)
/* Bytes of the entry stack, which begins a page, in older kernels; now it is a whole page
 * (arch/x86/include/asm/processor.h, struct entry_stack). */
#define SMALL_ENTRY_STACK 512

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
	struct bpf_stack *stack = &walk->sample->head.stacks[kind & (BPF_STACKS - 1)];
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
	sample->code[0].gva = 0;
	sample->code[0].page = BPF_NO_PAGE;
	walk->scratch->code.gva = 1; /* not a page address */
	walk->scratch->task = 0;
}

/* The words of the task whose stack is in use: in the middle of a switch, the next one. */
static __always_inline const __u64 *task_in_use(const struct walk *walk)
{
	__u32 index = walk->scratch->task;

	BOUND(index, 1);
	return walk->sample->head.tasks.words[index];
}

/* RSP: of kernel code, or 0. */
static __always_inline void choose_task(struct walk *walk, __u64 rsp)
{
	const __u64 *next = walk->sample->head.tasks.words[1];

	walk->scratch->task = walk->sample->head.flags & BPF_TASKS_KNOWN && next[BPF_TASK_AT] &&
			      rsp - next[BPF_TASK_STACK] <= walk->scratch->vcpu.cpu.stack_size;
}

/* True if the reader can unwind the user stack of the task. */
static __always_inline int has_user_stack(const struct walk *walk)
{
	const struct bpf_sample *sample = &walk->sample->head;

	return sample->flags & BPF_TASKS_KNOWN && sample->flags & BPF_CR3_KNOWN &&
	       sample->flags & BPF_RSP_KNOWN && walk->scratch->vcpu.cpu.copies &&
	       task_in_use(walk)[BPF_TASK_MM];
}

/* Records one of the pages of PROCESS, each of which shows that a mapping exists. */
static long record_page(__u32 turn, void *context)
{
	const struct walk *walk = context;
	struct bpf_whole_sample *sample = walk->sample;
	__u64 mm = task_in_use(walk)[BPF_TASK_MM], gva;
	__u32 index = sample->head.addresses;

	BOUND(turn, 7);
	if (turn >= BPF_PROCESS_PAGES || index >= BPF_CODE_PAGES)
		return 1;
	gva = *(const volatile __u64 *)&walk->scratch->vcpu.processes[BPF_PROCESS_INDEX(mm)]
		       .pages[turn];
	if (!gva)
		return 1;
	sample->code[index].gva = gva;
	sample->code[index].page = code_page(walk, gva);
	sample->head.addresses = index + 1;
	return 0;
}

static __always_inline void copy_user_stack(struct walk *walk, __u64 rip, __u64 rsp)
{
	const __u64 *task = task_in_use(walk);
	__u64 mm = task[BPF_TASK_MM], size = BPF_USER_STACK_FIRST;
	const volatile struct bpf_process *process =
		&walk->scratch->vcpu.processes[BPF_PROCESS_INDEX(mm)];
	__u64 known = process->mm_size;
	int is_known = (known ^ mm << 16) < 1u << 16;

	if (is_known)
		size = at_most(known & 0xffff, BPF_USER_STACK_MAX);
	walk->sample->code[0].gva = rip;
	walk->sample->code[0].page = code_page(walk, rip);
	if (!is_known || process->number != task[BPF_TASK_SPACE] ||
	    process->changes != task[BPF_TASK_CHANGES]) {
		walk->scratch->wakes = 1;
		if (is_known)
			bpf_loop(BPF_PROCESS_PAGES, record_page, walk, 0);
	}
	copy_stack(walk, BPF_STACK_USER, rsp, size);
}

static __always_inline int is_user_frame(const __u64 *frame)
{
	return (frame[1] & 0xffff) == CS_USER || (frame[1] & 0xffff) == CS_USER32;
}

/* Reads what the CPU pushed when it entered the kernel from the user code of the current task. */
static __always_inline int read_entry_frame(struct walk *walk)
{
	struct scratch *scratch = walk->scratch;
	const struct bpf_cpu *cpu = &scratch->vcpu.cpu;
	__u64 *frame = scratch->frame, size = sizeof(scratch->frame);
	__u64 top = task_in_use(walk)[BPF_TASK_STACK] + cpu->stack_size;

	for (__u32 i = 0; i < 2; i++) {
		if (!read_space(&scratch->space, &scratch->vcpu.slots,
				top - i * FRED_PADDING - size, frame, size))
			return 0;
		if (is_user_frame(frame))
			return 1;
	}
	return 0;
}

/* Reads what the CPU pushed on the entry or exception stack at RSP, which has one or two pages.
 * Returns the end of that stack; 0: unknown. */
static __always_inline __u64 read_exception_frame(struct walk *walk, __u64 rsp)
{
	struct scratch *scratch = walk->scratch;
	__u64 *frame = scratch->frame, end = (rsp & ~4095ull) + 4096;

	if ((rsp & 4095) < SMALL_ENTRY_STACK)
		end += SMALL_ENTRY_STACK - 4096;
	for (__u32 i = 0; i < 2; i++, end = (end & ~4095ull) + 4096) {
		if (!read_space(&scratch->space, &scratch->vcpu.slots, end - sizeof(scratch->frame),
				frame, sizeof(scratch->frame)))
			return 0;
		if (is_user_frame(frame) || ((frame[1] & 0xffff) == CS_KERNEL && frame[3] >> 63))
			return end;
	}
	return 0;
}

/* Copies the task's stack from where the interrupt left it, which is in the last word of the
 * interrupt's (kernel: arch/x86/include/asm/irq_stack.h). */
static __always_inline void copy_stack_below(struct walk *walk, __u64 irq_top)
{
	struct scratch *scratch = walk->scratch;
	__u64 start = task_in_use(walk)[BPF_TASK_STACK];
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
static __always_inline void copy_kernel_stacks(struct walk *walk, enum bpf_stack_kind kind,
					       __u64 rsp)
{
	const struct bpf_sample *sample = &walk->sample->head;
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;
	__u64 size = KERNEL_STACK_SIZE - (rsp & (KERNEL_STACK_SIZE - 1));
	__u64 left = cpu->irq_top - rsp;
	int on_irq_stack = sample->flags & BPF_TASKS_KNOWN && left <= KERNEL_STACK_SIZE;

	copy_stack(walk, kind, rsp, at_most(on_irq_stack ? left : size, BPF_KERNEL_STACK_MAX));
	if (on_irq_stack)
		copy_stack_below(walk, cpu->irq_top);
}

/* Copies the stacks of kernel code. True: the frame of the entry from user code was read. */
static __always_inline int copy_from_kernel(struct walk *walk)
{
	enum bpf_stack_kind kind = BPF_STACK_IN_USE;
	__u64 rsp = walk->sample->head.rsp, end;

	if (rsp - ENTRY_AREA < ENTRY_AREA_SIZE) {
		end = read_exception_frame(walk, rsp);
		copy_stack(walk, kind, rsp,
			   end ? at_most(end - rsp, BPF_KERNEL_STACK_MAX) : 4096 - (rsp & 4095));
		if (!end || is_user_frame(walk->scratch->frame))
			return !!end;
		rsp = walk->scratch->frame[3];
		kind = BPF_STACK_INTERRUPTED;
	}
	choose_task(walk, rsp);
	copy_kernel_stacks(walk, kind, rsp);
	return has_user_stack(walk) && read_entry_frame(walk);
}

static __always_inline void copy_stacks(struct walk *walk)
{
	struct bpf_sample *sample = &walk->sample->head;

	if (!(sample->flags & BPF_CR3_KNOWN)) {
		sample->flags |= BPF_CHAIN_CUT;
		return;
	}
	begin_copies(walk);
	if (copy_from_kernel(walk) && has_user_stack(walk))
		copy_user_stack(walk, walk->scratch->frame[0], walk->scratch->frame[3]);
}

#endif
