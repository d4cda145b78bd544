/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches guest memory for tasks that the guest agent reported. Input: struct agent_task KNOWN
 * times, then the pages that repeat over the whole address space. The addresses of the kernel's
 * symbols are fixed; the current task of a CPU is a variable of its own first, then a member of
 * pcpu_hot.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mapped_pages.h"
#include "vmm/guest/linux/task_find.h"

#define KNOWN 6u
#define IMAGE 0xffffffff80000000ull
#define TASK  0x200u           /* bytes */
#define RUNS  (IMAGE + 0x6000) /* the variable with a CPU's current task */
#define HOT   64u              /* bytes of pcpu_hot */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
	const char *name;
	uint64_t address, size;
} symbols[] = { { "init_task", IMAGE, TASK },
		{ "init_mm", IMAGE + 0x2f00, 0x100 },
		{ "init_top_pgt", IMAGE + 0x4000, 0x1000 },
		{ "gdt_page", IMAGE + 0x6008, 8 },
		{ "__start_init_task", IMAGE + 0x7000, 0x4000 },
		{ "__end_init_task", IMAGE + 0xb000, 8 } };

static struct guest_kernel make_kernel(bool hot)
{
	struct guest_kernel kernel = { .paging = mapped_pages_paging,
				       .symbols = symbols_new(),
				       .per_cpu = symbols_new() };

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (symbols_add(kernel.symbols, symbols[i].address, symbols[i].size, 'D',
				symbols[i].name, NULL))
			abort();
	if (hot ? symbols_add(kernel.per_cpu, RUNS, HOT, 'D', "pcpu_hot", NULL)
		: symbols_add(kernel.symbols, RUNS, 8, 'D', "current_task", NULL))
		abort();
	symbols_finish(kernel.symbols);
	symbols_finish(kernel.per_cpu);
	return kernel;
}

static void check(const struct guest_task_layout *layout, bool hot)
{
	if (layout->pid > TASK - 4 || layout->tgid > TASK - 4 || layout->pid == layout->tgid ||
	    layout->comm > TASK - SAMPLE_COMM_SIZE || layout->mm > TASK - 8 ||
	    layout->stack > TASK - 8 || layout->list > TASK - 16 || layout->page_table > 0x100 - 8)
		abort();
	if (hot ? layout->current - RUNS > HOT - 8 ||
			    (layout->irq_stack && layout->irq_stack - RUNS > HOT - 8) ||
			    layout->irq_stack == layout->current
		: layout->current != RUNS)
		abort();
}

static void find(const struct reported_tasks *reported, bool hot)
{
	struct guest_region region = { .size = sizeof(guest_memory), .hva = guest_memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct guest_kernel kernel = make_kernel(hot);
	struct guest_task_layout layout;

	if (!guest_task_layout_find(&layout, &kernel, &view, reported))
		check(&layout, hot);
	symbols_free(kernel.symbols);
	symbols_free(kernel.per_cpu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct {
		struct agent_tasks head;
		struct agent_task tasks[KNOWN];
	} message = { .head.count = KNOWN };
	struct reported_tasks reported;

	if (size < sizeof(message.tasks))
		return 0;
	memcpy(message.tasks, data, sizeof(message.tasks));
	if (reported_tasks_read(&reported, span_of(&message, sizeof(message))))
		return 0;
	mapped_pages_fill(data + sizeof(message.tasks), size - sizeof(message.tasks));
	find(&reported, false);
	find(&reported, true);
	return 0;
}
