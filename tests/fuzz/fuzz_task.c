/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: struct header, which also has the layout, then the pages that repeat over the whole
 * address space.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mapped_pages.h"
#include "vmm/guest/linux/guest_file.h"
#include "vmm/guest/linux/task.h"

#define MEMBER 0x1fffu /* largest offset of a member, as BTF would give it */

struct header {
	uint64_t cr3, gdt_base, rsp;
	uint64_t offsets, current, gdt_page, irq_stack, scheduled;
	uint16_t pid, tgid, comm, mm, stack, page_table;
	uint16_t stack_size;
	uint8_t cpl, reserved;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct guest_task_layout layout_of(const struct header *header)
{
	return (struct guest_task_layout){
		.known = true,
		.offsets = header->offsets,
		.current = header->current,
		.gdt_page = header->gdt_page,
		.irq_stack = header->irq_stack,
		.scheduled = header->scheduled,
		.stack_size = header->stack_size,
		.pid = header->pid & MEMBER,
		.tgid = header->tgid & MEMBER,
		.comm = header->comm & MEMBER,
		.mm = header->mm & MEMBER,
		.stack = header->stack & MEMBER,
		.page_table = header->page_table & MEMBER,
		.parent = (header->pid ^ 0x10) & MEMBER,
		.leader = (header->pid ^ 0x20) & MEMBER,
		.started = (header->pid ^ 0x40) & MEMBER,
		.cgroups = { .known = true,
			     .task_users = (header->mm ^ 0x20) & MEMBER,
			     .task_set = (header->mm ^ 0x10) & MEMBER,
			     .set_cgroup = header->comm & MEMBER,
			     .cgroup_node = (header->comm ^ 0x10) & MEMBER,
			     .node_count = header->stack & MEMBER,
			     .node_id = (header->stack ^ 0x8) & MEMBER,
			     .node_name = (header->stack ^ 0x10) & MEMBER,
			     .node_parent = (header->stack ^ 0x20) & MEMBER }
	};
}

static void read_cgroup(const struct guest_task_layout *layout, const struct guest_view *view,
			const struct guest_paging *kernel, const struct guest_task *task)
{
	struct kernel_memory reads = { .view = view, .paging = kernel };
	struct guest_cgroups *cgroups;
	const char *name;

	if (!task->cgroup.id || guest_cgroups_create(&cgroups))
		return;
	guest_cgroups_enter(cgroups, &task->cgroup);
	guest_cgroups_load(cgroups, &reads, &layout->cgroups);
	name = guest_cgroups_path(cgroups, task->cgroup.id);
	if (name && (*name != '/' || strlen(name) >= PATH_TAIL_MAX))
		abort();
	guest_cgroups_free(cgroups);
}

static void check(bool found, const struct guest_task *task)
{
	if (!memchr(task->comm, 0, sizeof(task->comm)) ||
	    !memchr(task->process_comm, 0, sizeof(task->process_comm)) ||
	    found == (task->pid == SAMPLE_TASK_UNKNOWN) ||
	    found == (task->tid == SAMPLE_TASK_UNKNOWN))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .size = sizeof(guest_memory), .hva = guest_memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct guest_registers registers = { .paging = mapped_pages_paging };
	struct guest_paging kernel = registers.paging;
	struct guest_task_layout layout;
	struct guest_task task;
	struct header header;
	bool found;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	size -= sizeof(header);
	mapped_pages_fill(data + sizeof(header), size);
	registers.paging.cr3 = header.cr3;
	registers.gdt_base = header.gdt_base;
	registers.rsp = header.rsp;
	registers.cpl = header.cpl & 3;
	layout = layout_of(&header);
	found = guest_task_current(&layout, &view, &kernel, &registers, &task);
	check(found, &task);
	if (found)
		guest_task_find_cgroup(&layout, &view, &kernel, &task);
	read_cgroup(&layout, &view, &kernel, &task);
	return 0;
}
