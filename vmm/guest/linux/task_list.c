/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/task_list.h"

#include <errno.h>

#include "vmm/guest/linux/kernel_memory.h"

#define LINKS_MAX   (1u << 16) /* the list includes kernel threads */
#define USER_HALF   256        /* entries of a top table; SDM vol. 3A 4.5 */
#define PRESENT     1ull
#define PTE_ADDRESS 0x000ffffffffff000ull

struct links {
	uint64_t next, previous;
};

/* Root 0: a process without memory of its own. */
static bool read_process(struct kernel_memory *memory, const struct guest_task_layout *layout,
			 uint64_t task, struct guest_process *process)
{
	uint64_t mm, table;

	process->root = 0;
	if (!kernel_memory_read(memory, task + layout->tgid, &process->pid, sizeof(process->pid)) ||
	    !kernel_memory_read_u64(memory, task + layout->mm, &mm))
		return false;
	return !mm || (process->pid < SAMPLE_TASK_LIMIT &&
		       kernel_memory_read_u64(memory, mm + layout->page_table, &table) &&
		       kernel_memory_translate(memory, table, &process->root));
}

int guest_task_list(const struct guest_task_layout *layout, const struct guest_view *view,
		    const struct guest_paging *kernel_paging, struct guest_process *list,
		    size_t max)
{
	struct kernel_memory memory = { .view = view, .paging = kernel_paging };
	uint64_t first = layout->first + layout->list, at = first, before;
	struct links links;
	size_t count = 0;

	if (!layout->known || !layout->first)
		return -ENOENT;
	if (!kernel_memory_read(&memory, at, &links, sizeof(links)))
		return -EAGAIN;
	for (unsigned int i = 0; links.next != first; i++) {
		struct guest_process process;

		before = at;
		at = links.next;
		if (i == LINKS_MAX || !kernel_memory_read(&memory, at, &links, sizeof(links)) ||
		    links.previous != before ||
		    !read_process(&memory, layout, at - layout->list, &process))
			return -EAGAIN;
		if (process.root && count == max)
			return -EAGAIN;
		if (process.root)
			list[count++] = process;
	}
	return (int)count;
}

bool guest_task_has_pti_pair(const struct guest_view *view, uint64_t root)
{
	uint64_t own[USER_HALF], other[USER_HALF];
	bool mapped = false;

	if (root & CR3_PTI_USER || guest_read_physical(view, root, own, sizeof(own)) ||
	    guest_read_physical(view, root | CR3_PTI_USER, other, sizeof(other)))
		return false;
	for (int i = 0; i < USER_HALF; i++) {
		bool present = own[i] & PRESENT;

		if (present != (other[i] & PRESENT) ||
		    (present && (own[i] ^ other[i]) & PTE_ADDRESS))
			return false;
		mapped |= present;
	}
	return mapped;
}
