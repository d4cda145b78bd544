// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/bpf_task_words.h"

#include <stddef.h>

/* Each read takes as long as the next: what lies in a row in the task is read at once. */
static void join_words(struct bpf_cpu *cpu)
{
	size_t run = BPF_TASK_STACK;

	for (size_t i = 0; i < BPF_TASK_WORDS; i++)
		cpu->sizes[i] = 8;
	for (size_t i = BPF_TASK_STACK + 1; i < BPF_TASK_PAGE_TABLE; i++) {
		if (cpu->offsets[i] == cpu->offsets[run] + (i - run) * 8)
			cpu->sizes[run] = (uint32_t)(i - run + 1) * 8;
		else if (cpu->offsets[i] != cpu->offsets[i - 1]) /* another word */
			run = i;
		if (run != i)
			cpu->sizes[i] = 0;
	}
}

void bpf_task_words_choose(struct bpf_cpu *cpu, const struct guest_task_layout *layout)
{
	const uint32_t offsets[BPF_TASK_ROOM] = {
		[BPF_TASK_STACK] = layout->stack,
		[BPF_TASK_MM] = layout->mm,
		[BPF_TASK_PID] = layout->pid,
		[BPF_TASK_TGID] = layout->tgid,
		[BPF_TASK_COMM] = layout->comm,
		[BPF_TASK_COMM + 1] = layout->comm + 8,
		[BPF_TASK_COMM + 2] = layout->comm + 16,
		/* Where it is not known it is none of its own, and not read. */
		[BPF_TASK_SET] =
			layout->cgroups.known ? layout->cgroups.task_set : layout->comm + 16,
		[BPF_TASK_PAGE_TABLE] = layout->page_table,
	};

	for (size_t i = 0; i < BPF_TASK_WORDS; i++)
		cpu->offsets[i] = offsets[i] & ~7u;
	join_words(cpu);
}
