/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into kvmscope run in place of two functions of the library: records for samples of kernel
 * code what the search for RSP gets (vmm/guest/unwind/stack_search.h), with the truth. The format
 * is that of hidden_rsp.h.
 *
 * HIDDEN_RSP_FILE is the file, HIDDEN_RSP_SAMPLES the number of samples.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/hidden_rsp.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/unwind.h"

#define LAYOUT_ARGUMENTS                                                                           \
	const struct guest_task_layout *layout, const struct guest_view *view,                     \
		const struct guest_paging *paging, const struct guest_registers *registers,        \
		struct guest_task *task
#define UNWIND_ARGUMENTS                                                                           \
	const struct kernel_orc *orc, const struct guest_view *view,                               \
		const struct guest_registers *registers, struct user_map *map,                     \
		struct guest_callchain *chain

/* The linker's option --wrap gives them these names. */
bool __real_guest_task_current(LAYOUT_ARGUMENTS);
bool __wrap_guest_task_current(LAYOUT_ARGUMENTS);
void __real_guest_unwind(UNWIND_ARGUMENTS);
void __wrap_guest_unwind(UNWIND_ARGUMENTS);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const struct guest_kernel *kernel;
static FILE *file;
static unsigned long left;
static bool begun;

/* Before kvmscope confines itself. */
__attribute__((constructor)) static void open_file(void)
{
	const char *path = getenv("HIDDEN_RSP_FILE"), *count = getenv("HIDDEN_RSP_SAMPLES");

	file = path ? fopen(path, "w") : NULL;
	left = count ? strtoul(count, NULL, 10) : 0;
	if (!file || !left)
		fprintf(stderr, "hidden_rsp_recorder: no file, or no samples\n");
}

bool __wrap_guest_task_current(LAYOUT_ARGUMENTS)
{
	kernel = (const void *)((const char *)layout - offsetof(struct guest_kernel, tasks));
	return __real_guest_task_current(layout, view, paging, registers, task);
}

static void add_stack(struct hidden_rsp_sample *sample, uint64_t start, bool of_task)
{
	if (start && sample->stack_count < STACK_SEARCH_STACKS)
		sample->stacks[sample->stack_count++] =
			(struct stack_bounds){ start, start + kernel->tasks.stack_size, of_task };
}

/* As BPF does (vmm/attach/bpf/stack_copies.h). */
static bool find_stacks(struct hidden_rsp_sample *sample, const struct guest_view *view,
			const struct guest_registers *registers)
{
	const struct guest_task_layout *layout = &kernel->tasks;
	struct guest_tasks_snapshot tasks;
	uint64_t offset, top = 0;

	if (!guest_task_cpu_offset(layout, view, &kernel->paging, registers, &offset) ||
	    !guest_tasks_read(layout, view, &kernel->paging, registers, offset, &tasks))
		return false;
	add_stack(sample, tasks.current.stack, true);
	if (tasks.scheduled.at && tasks.scheduled.at != tasks.current.at)
		add_stack(sample, tasks.scheduled.stack, true);
	if (layout->irq_stack)
		guest_read_virtual(view, &kernel->paging, layout->irq_stack + offset, &top, 8);
	/* The pointer leads to the last word: arch/x86/kernel/irq_64.c, map_irq_stack(). */
	add_stack(sample, top ? ((top + 15) & ~15ull) - layout->stack_size : 0, false);
	return true;
}

static void write_stack(const struct guest_view *view, const struct stack_bounds *stack)
{
	static uint8_t bytes[HIDDEN_RSP_STACK_MAX];
	static const uint8_t zeroes[HIDDEN_RSP_LINE];
	uint64_t size = stack->end - stack->start;

	memset(bytes, 0, sizeof(bytes));
	for (uint64_t at = 0; at < size; at += 4096)
		if (guest_read_virtual(view, &kernel->paging, stack->start + at, bytes + at, 4096))
			memset(bytes + at, 0, 4096);
	for (uint16_t at = 0; at < size; at += HIDDEN_RSP_LINE) {
		if (!memcmp(bytes + at, zeroes, HIDDEN_RSP_LINE))
			continue;
		fwrite(&at, sizeof(at), 1, file);
		fwrite(bytes + at, HIDDEN_RSP_LINE, 1, file);
	}
	fwrite(&(uint16_t){ UINT16_MAX }, sizeof(uint16_t), 1, file);
}

/* The guest's other vCPUs run: its code and tables do not change, other data is not used. */
static void write_memory(const struct guest_view *view, const struct guest_registers *registers)
{
	struct hidden_rsp_sample first = { .registers = *registers };

	first.registers.paging = kernel->paging;
	fwrite(&first, sizeof(first), 1, file);
	fwrite(&(uint64_t){ view->region_count }, sizeof(uint64_t), 1, file);
	for (size_t i = 0; i < view->region_count; i++) {
		fwrite(&view->regions[i].gpa, 8, 1, file);
		fwrite(&view->regions[i].size, 8, 1, file);
		fwrite(view->regions[i].hva, view->regions[i].size, 1, file);
	}
}

static void record(const struct guest_view *view, const struct guest_registers *registers,
		   const struct guest_callchain *chain)
{
	struct hidden_rsp_sample sample = { .registers = *registers,
					    .flags = chain->flags,
					    .depth = chain->kernel_depth };

	if (!find_stacks(&sample, view, registers))
		return;
	if (sample.depth > HIDDEN_RSP_DEPTH)
		sample.depth = HIDDEN_RSP_DEPTH;
	memcpy(sample.addresses, chain->addresses, sample.depth * sizeof(uint64_t));
	if (!begun)
		write_memory(view, registers);
	begun = true;
	fwrite(&sample, sizeof(sample), 1, file);
	for (unsigned int i = 0; i < sample.stack_count; i++)
		write_stack(view, &sample.stacks[i]);
	if (--left)
		return;
	fclose(file);
	fprintf(stderr, "hidden_rsp_recorder: complete\n");
}

void __wrap_guest_unwind(UNWIND_ARGUMENTS)
{
	__real_guest_unwind(orc, view, registers, map, chain);
	if (registers->cpl || !kernel || !orc || kernel->orc != orc || !kernel->tasks.known)
		return;
	pthread_mutex_lock(&lock);
	if (file && left)
		record(view, registers, chain);
	pthread_mutex_unlock(&lock);
}
