/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kernel_memory.h"

#include "shared/clock_ns.h"
#include "vmm/guest/page_walk.h"

/*
 * Walks the page tables. Not inlined: a stack protector would cost each read in a known window more
 * than the search.
 */
static __attribute__((noinline)) const struct kernel_memory_window *
add_window(struct kernel_memory *memory, uint64_t gva)
{
	struct kernel_memory_window *window;
	struct guest_translation found;

	if (guest_translate(memory->view, memory->paging, gva, &found))
		return NULL;
	window = &memory->windows[memory->next++ % KERNEL_MEMORY_WINDOWS];
	*window = (struct kernel_memory_window){ .start = gva & ~(found.page_size - 1),
						 .size = found.page_size,
						 .gpa = found.gpa & ~(found.page_size - 1) };
	return window;
}

static const struct kernel_memory_window *find_window(struct kernel_memory *memory, uint64_t gva)
{
	for (unsigned int i = 0; i < KERNEL_MEMORY_WINDOWS; i++)
		if (gva - memory->windows[i].start < memory->windows[i].size)
			return &memory->windows[i];
	return add_window(memory, gva);
}

bool kernel_memory_translate(struct kernel_memory *memory, uint64_t gva, uint64_t *gpa)
{
	const struct kernel_memory_window *window = find_window(memory, gva);

	if (window)
		*gpa = window->gpa + (gva - window->start);
	return window;
}

static bool has_time(struct kernel_memory *memory)
{
	if (memory->reads++ % KERNEL_MEMORY_READS == 0)
		memory->timed_out |= deadline_passed(memory->deadline);
	return !memory->timed_out;
}

bool kernel_memory_read(struct kernel_memory *memory, uint64_t gva, void *to, size_t size)
{
	const struct kernel_memory_window *window;

	if (gva < KERNEL_HALF || gva + size < gva || !has_time(memory))
		return false;
	window = find_window(memory, gva);
	if (!window)
		return false;
	if (gva - window->start + size > window->size)
		return !guest_read_virtual(memory->view, memory->paging, gva, to, size);
	return !guest_read_physical(memory->view, window->gpa + (gva - window->start), to, size);
}
