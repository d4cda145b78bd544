/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/task_guest.h"

#include <string.h>

const struct guest_task_layout task_guest_layout = {
	.known = true,
	.offsets = DIRECT + OFFSETS,
	.current = CURRENT,
	.gdt_page = GDT_PAGE,
	.irq_stack = IRQ_POINTER,
	.scheduled = SCHEDULED,
	.apic_id = APIC_ID,
	.cpus = 4,
	.stack_size = 0x4000,
	.pid = 0x990,
	.tgid = 0x994,
	.comm = 0xff8,
	.mm = 0x8e0,
	.stack = 0x18,
	.page_table = 0x78,
	.parent = 0x9a0,
	.leader = 0x9d0,
	.started = 0xa80,
	.cgroups = { .known = true,
		     .task_users = 0x28,
		     .task_set = 0xc00,
		     .set_cgroup = 0x88,
		     .cgroup_node = 0xf0,
		     .node_count = 0,
		     .node_parent = 0x8,
		     .node_name = 0x10,
		     .node_id = 0x60 },
};

void task_guest_put(struct task_guest *guest, uint64_t gpa, uint64_t value)
{
	flat_guest_write_u64(&guest->guest, gpa, value);
}

void task_guest_put_task(struct task_guest *guest, unsigned int n, uint32_t pid, uint32_t tid,
			 const char *comm)
{
	task_guest_put(guest, TASK(n) + task_guest_layout.pid,
		       (uint64_t)pid << 32 | tid); /* tgid follows pid */
	task_guest_put(guest, TASK(n) + task_guest_layout.cgroups.task_users, 1);
	task_guest_put(guest, TASK(n) + task_guest_layout.stack, DIRECT + TASK_STACK(n));
	task_guest_put(guest, TASK(n) + task_guest_layout.mm, DIRECT + MM(n));
	task_guest_put(guest, MM(n) + task_guest_layout.page_table, DIRECT + TABLES(n));
	/* Long names during an update: without a terminator. */
	memcpy(guest->guest.memory + TASK(n) + task_guest_layout.comm, comm,
	       strnlen(comm, SAMPLE_COMM_SIZE - 1) + 1);
}

void task_guest_put_process(struct task_guest *guest, unsigned int n, unsigned int leader,
			    uint64_t started, unsigned int parent)
{
	task_guest_put(guest, TASK(n) + task_guest_layout.leader, DIRECT + TASK(leader));
	task_guest_put(guest, TASK(leader) + task_guest_layout.started, started);
	task_guest_put(guest, TASK(leader) + task_guest_layout.parent, DIRECT + TASK(parent));
}

void task_guest_put_cgroup(struct task_guest *guest, unsigned int n, unsigned int parent,
			   uint64_t id, const char *name)
{
	const struct guest_cgroup_layout *layout = &task_guest_layout.cgroups;

	task_guest_put(guest, NODE(n) + layout->node_count, 1);
	task_guest_put(guest, NODE(n) + layout->node_parent,
		       parent == n ? 0 : DIRECT + NODE(parent));
	task_guest_put(guest, NODE(n) + layout->node_name, DIRECT + NODE(n) + 0x100);
	task_guest_put(guest, NODE(n) + layout->node_id, id);
	memcpy(guest->guest.memory + NODE(n) + 0x100, name, strlen(name) + 1);
	task_guest_put(guest, CGROUP(n) + layout->cgroup_node, DIRECT + NODE(n));
	task_guest_put(guest, CSS_SET(n) + layout->set_cgroup, DIRECT + CGROUP(n));
}

void task_guest_enter_cgroup(struct task_guest *guest, unsigned int task, unsigned int cgroup)
{
	task_guest_put(guest, TASK(task) + task_guest_layout.cgroups.task_set,
		       DIRECT + CSS_SET(cgroup));
}

static void put_cpu(struct task_guest *guest, unsigned int cpu, unsigned int task)
{
	task_guest_put(guest, OFFSETS + cpu * 8, DIRECT + AREA(cpu));
	task_guest_put(guest, AREA(cpu) + CURRENT, DIRECT + TASK(task));
	task_guest_put(guest, AREA(cpu) + SCHEDULED, DIRECT + TASK(task));
	task_guest_put(guest, AREA(cpu) + IRQ_POINTER, DIRECT + IRQ_STACK + 0x4000 - 8);
	/* As if each CPU were in a socket of its own, and in 32 bits, as in newer kernels. */
	task_guest_put(guest, AREA(cpu) + APIC_ID, 0xaaaaaaaa00000000 | cpu * 2);
	/* The node is above the CPU's number. */
	task_guest_put(guest, AREA(cpu) + CPU_SEGMENT, 0x0040f50000000000 | 1 << 12 | cpu);
	flat_guest_map(&guest->guest, guest->kernel.cr3, ENTRY_AREA + cpu * 0x1000,
		       AREA(cpu) + GDT_PAGE, 4096, 0);
}

void task_guest_make(struct task_guest *guest)
{
	memset(guest, 0, sizeof(*guest));
	flat_guest_create(&guest->guest, TASK_GUEST_SIZE);
	guest->registers = &guest->guest.registers;
	guest->kernel = guest->registers->paging;
	for (uint64_t at = 0; at < TASK_GUEST_SIZE; at += 2u << 20)
		flat_guest_map(&guest->guest, guest->kernel.cr3, DIRECT + at, at, 2u << 20, 0);
	task_guest_put_task(guest, 1, 700, 702, "worker");
	task_guest_put_task(guest, 2, 800, 800, "a-name-too-long-for-it");
	put_cpu(guest, 0, 1);
	put_cpu(guest, 1, 2);
	guest->registers->gdt_base = ENTRY_AREA;
	guest->registers->cpl = 3;
	guest->registers->rsp = 0x7ffffffde000;
	guest->registers->paging.cr3 = TABLES(1);
}

void task_guest_free(struct task_guest *guest)
{
	flat_guest_destroy(&guest->guest);
}

bool task_guest_lookup(struct task_guest *guest)
{
	if (!guest_task_current(&task_guest_layout, &guest->guest.view, &guest->kernel,
				guest->registers, &guest->task))
		return false;
	guest_task_find_cgroup(&task_guest_layout, &guest->guest.view, &guest->kernel,
			       &guest->task);
	return true;
}
