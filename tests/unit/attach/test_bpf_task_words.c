/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a task that the BPF program reads: all that are needed, with few reads. */
#include <stdbool.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/bpf_source.h"

#define SLOTS 16 /* words of the task */

static const struct guest_vma_layout vmas;

/* Simulates the program on a task whose words contain their own offset plus 1. Returns the
 * number of reads. */
static unsigned int read_task(const struct bpf_cpu *cpu, uint64_t task[BPF_TASK_ROOM])
{
	unsigned int reads = 0;

	for (uint32_t word = BPF_TASK_STACK; word < BPF_TASK_PAGE_TABLE; word++) {
		if (cpu->sizes[word])
			reads++;
		if (cpu->sizes[word] >= BPF_TASK_RUN ||
		    word + cpu->sizes[word] / 8 > BPF_TASK_PAGE_TABLE)
			FAIL_TEST("%u bytes are read from word %u on", cpu->sizes[word], word);
		for (uint32_t i = 0; i < cpu->sizes[word] / 8; i++)
			task[word + i] = cpu->offsets[word] + i * 8 + 1;
	}
	return reads;
}

static void check_task(const struct guest_task_layout *layout)
{
	uint64_t task[BPF_TASK_ROOM] = { 0 };
	struct bpf_cpu cpu = { 0 };

	bpf_task_words_set(&cpu, layout, &vmas);
	read_task(&cpu, task);
	CHECK_EQUAL(task[BPF_TASK_STACK], layout->stack + 1);
	CHECK_EQUAL(task[BPF_TASK_MM], layout->mm + 1);
	CHECK_EQUAL(task[BPF_TASK_PID], (layout->pid & ~7u) + 1);
	if (layout->tgid / 8 != layout->pid / 8)
		CHECK_EQUAL(task[BPF_TASK_TGID], (layout->tgid & ~7u) + 1);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQUAL(task[BPF_TASK_COMM + i], (layout->comm & ~7u) + i * 8 + 1);
	if (layout->cgroups.known)
		CHECK_EQUAL(task[BPF_TASK_SET], layout->cgroups.task_set + 1);
	CHECK_EQUAL(cpu.offsets[BPF_TASK_PAGE_TABLE], layout->page_table);
	CHECK_EQUAL(cpu.sizes[BPF_TASK_PAGE_TABLE], 8);
}

/* The byte offset of COUNT consecutive unused words. */
static uint32_t choose(bool *taken, uint32_t count)
{
	for (;;) {
		uint32_t slot = (uint32_t)rand() % (SLOTS - count + 1), i = 0;

		while (i < count && !taken[slot + i])
			i++;
		if (i < count)
			continue;
		for (i = 0; i < count; i++)
			taken[slot + i] = true;
		return slot * 8;
	}
}

TEST(bpf_task_words, all_words_are_read_at_any_offset)
{
	srand(1);
	for (int i = 0; i < 20000; i++) {
		bool taken[SLOTS] = { false };
		struct guest_task_layout layout = {
			.comm = choose(taken, 3) + (uint32_t)rand() % 8,
			.stack = choose(taken, 1),
			.mm = choose(taken, 1),
			.pid = choose(taken, 1),
			.page_table = 0x50,
			.cgroups.known = rand() % 2,
		};

		layout.tgid = rand() % 2 ? layout.pid + 4 : choose(taken, 1);
		layout.cgroups.task_set = choose(taken, 1);
		check_task(&layout);
	}
}

/* As in most kernels: pid and tgid in one word, the name in three, the others separate. */
TEST(bpf_task_words, consecutive_words_are_read_at_once)
{
	struct guest_task_layout layout = {
		.stack = 0x20, .mm = 0x8f8, .pid = 0x998, .tgid = 0x99c, .comm = 0xbb0
	};
	uint64_t task[BPF_TASK_ROOM] = { 0 };
	struct bpf_cpu cpu = { 0 };

	bpf_task_words_set(&cpu, &layout, &vmas);
	CHECK_EQUAL(read_task(&cpu, task), 4);
	layout.mm = layout.stack + 8;
	bpf_task_words_set(&cpu, &layout, &vmas);
	CHECK_EQUAL(read_task(&cpu, task), 3);
}
