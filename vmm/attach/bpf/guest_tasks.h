/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: reads the tasks of a Linux guest, at the addresses that the loader has set. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_TASKS_H
#define KVMSCOPE_ATTACH_BPF_GUEST_TASKS_H

#include "vmm/attach/bpf/guest_memory.h"

/* The GVA of a task's WORD, whose preceding words are known; 0: none. */
static __always_inline __u64 task_word_at(const struct bpf_cpu *cpu, const __u64 *task, __u32 word)
{
	__u64 base = task[word < BPF_TASK_PAGE_TABLE    ? BPF_TASK_AT
			  : word < BPF_TASK_STARTED     ? BPF_TASK_MM
			  : word < BPF_TASK_PARENT_TGID ? BPF_TASK_LEADER
							: BPF_TASK_PARENT];

	return base ? (base & ~7ull) + cpu->offsets[word] : 0;
}

/* Reads SIZE bytes, a multiple of 8, from one or two pages. */
static __always_inline int read_words(struct scratch *scratch, __u64 at, __u64 *to, __u32 size)
{
	__u32 first = 4096 - (at & 4095), second = 0;

	if (first < size)
		second = size - first;
	first = size - second;
	BOUND(first, BPF_TASK_RUN - 1);
	BOUND(second, BPF_TASK_RUN - 1);
	if (!read_space(&scratch->space, &scratch->vcpu.slots, at, to, first))
		return 0;
	return !second || read_space(&scratch->space, &scratch->vcpu.slots, at + first,
				     (__u8 *)to + first, second);
}

/* Reads a run of consecutive words of the first task, then of the second if it is another one. */
static long read_task_words(__u32 index, void *context)
{
	const struct walk *walk = context;
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;
	struct bpf_sample *sample = &walk->sample->head;
	__u32 which = index >= BPF_TASK_ROOM, word = index, size;
	__u64 *task = sample->tasks.words[which], at;

	BOUND(word, BPF_TASK_ROOM - 1);
	size = cpu->sizes[word];
	if (word < BPF_TASK_WORDS && size) {
		at = word ? task_word_at(cpu, task, word) : cpu->tasks[which];
		task[word] = 0;
		if (at && !read_words(walk->scratch, at, &task[word], size)) {
			if (word < BPF_TASK_STARTED)
				return 1;
			task[BPF_TASK_STARTED] = 0; /* the process is unknown */
		}
		/* Kernel threads have no mm_struct; a process may have no known parent. */
		if (!at && word < BPF_TASK_PAGE_TABLE && !which)
			return 1;
	}
	if (which && !word && (!task[0] || task[0] == sample->tasks.words[0][BPF_TASK_AT])) {
		task[0] = 0;
		sample->flags |= BPF_TASKS_KNOWN;
		return 1;
	}
	if (which && word == BPF_TASK_WORDS - 1)
		sample->flags |= BPF_TASKS_KNOWN;
	return 0;
}

static __always_inline void read_tasks(struct walk *walk)
{
	const struct bpf_cpu *cpu = &walk->scratch->vcpu.cpu;

	if (!cpu->cr3)
		return;
	/* Before all else: the data of this generation was complete when it was set. */
	walk->sample->head.generation = *(const volatile __u32 *)&cpu->generation;
	__asm__ volatile("" ::: "memory");
	open_space(&walk->scratch->space, cpu->cr3, cpu->levels);
	walk->sample->head.tasks.words[1][BPF_TASK_AT] = 0;
	bpf_loop(BPF_TASKS * BPF_TASK_ROOM, read_task_words, walk, 0);
}

/*
 * The CR3 of user code if only the processor has it: Linux runs it with the page tables of the
 * current task, at a kernel address. It is meaningless after the kernel was replaced, which the
 * reader detects.
 */
static __always_inline void read_cr3_of_task(struct walk *walk)
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

#endif
