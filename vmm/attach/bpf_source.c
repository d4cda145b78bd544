/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/bpf_source.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/attach/exit_row.h"
#include "vmm/attach/kernel_tables.h"

/* Converts records of the BPF program to samples */

static void fill_chain(const struct bpf_whole_sample *from, struct guest_callchain *chain,
		       bool kernel)
{
	uint32_t addresses = from->head.copied ? 1 : from->head.addresses;
	uint16_t depth = 0;

	chain->addresses[depth++] = from->head.rip;
	for (uint32_t i = 1; i < addresses && depth < chain->capacity; i++)
		chain->addresses[depth++] = from->addresses[i].gva;
	chain->kernel_depth = kernel ? depth : 0;
	chain->user_depth = kernel ? 0 : depth;
	if (!kernel && (from->head.flags & BPF_CHAIN_CUT || depth < addresses))
		chain->flags |= SAMPLE_USER_TRUNCATED;
}

/* If KVM has the CPL only in processor registers, it follows from the address, as in Linux. Code
 * without paging is firmware. */
static uint8_t level_of(const struct bpf_sample *from)
{
	if (!(from->flags & BPF_IN_GUEST) || from->flags & BPF_CPL_KNOWN)
		return (uint8_t)(from->cpl & 3);
	if (!(from->cr0 & CR0_PG))
		return 0;
	return from->rip >> 63 ? 0 : 3;
}

static void fill_registers(const struct bpf_sample *from, uint8_t level,
			   struct guest_registers *registers)
{
	const struct guest_paging paging = {
		.cr3 = from->cr3, .cr4 = from->cr4, .efer = from->efer, .cr0 = from->cr0
	};

	kernel_tables_registers(&paging, registers);
	registers->rip = from->rip;
	registers->rsp = from->flags & BPF_RSP_KNOWN ? from->rsp : 0;
	registers->rbp = from->rbp;
	registers->rax = from->rax;
	registers->rcx = from->rcx;
	registers->rdx = from->rdx;
	registers->rbx = from->rbx;
	registers->rsi = from->rsi;
	registers->rdi = from->rdi;
	registers->r8 = from->r8;
	registers->r9 = from->r9;
	registers->r10 = from->r10;
	registers->r11 = from->r11;
	registers->r12 = from->r12;
	registers->r13 = from->r13;
	registers->r14 = from->r14;
	registers->r15 = from->r15;
	registers->cpl = level;
	registers->long_mode = !(from->flags & BPF_CODE_32);
}

static uint32_t half_word(const __u64 *task, enum bpf_task_word word, uint32_t offset)
{
	return (uint32_t)(task[word] >> (offset & 7) * 8);
}

static void copy_comm(char *to, const __u64 *words, uint32_t offset)
{
	memcpy(to, (const uint8_t *)words + (offset & 7), SAMPLE_COMM_SIZE);
}

/* What was not read is 0. */
static void fill_process(const struct guest_task_layout *layout, const __u64 *task,
			 struct guest_process_state *seen)
{
	if (!layout->parent || !task[BPF_TASK_LEADER] || !task[BPF_TASK_PARENT])
		return;
	seen->started = task[BPF_TASK_STARTED];
	seen->parent = half_word(task, BPF_TASK_PARENT_TGID, layout->tgid);
	copy_comm(seen->comm, &task[BPF_TASK_PROCESS_COMM], layout->comm);
}

static void fill_task(const struct bpf_thread *thread, const __u64 *task,
		      struct guest_task_snapshot *seen)
{
	const struct guest_task_layout *layout = &thread->layout;
	/* Both ids may be in one word, which is read once. */
	const enum bpf_task_word tgid =
		layout->tgid / 8 == layout->pid / 8 ? BPF_TASK_PID : BPF_TASK_TGID;

	*seen = (struct guest_task_snapshot){
		.at = task[BPF_TASK_AT],
		.stack = task[BPF_TASK_STACK],
		.mm = task[BPF_TASK_MM],
		.page_table = task[BPF_TASK_MM] ? task[BPF_TASK_PAGE_TABLE] : 0,
		.set = layout->cgroups.known ? task[BPF_TASK_SET] : 0,
		.pid = half_word(task, BPF_TASK_PID, layout->pid),
		.tgid = half_word(task, tgid, layout->tgid),
	};
	if (seen->mm && thread->has_changes)
		seen->space = (struct guest_space_state){ .number = task[BPF_TASK_SPACE],
							  .changes = task[BPF_TASK_CHANGES] };
	copy_comm(seen->comm, &task[BPF_TASK_COMM], layout->comm);
	fill_process(layout, task, &seen->process);
}

static bool fill_tasks(const struct bpf_thread *thread, const struct bpf_sample *from,
		       struct guest_tasks_snapshot *seen)
{
	const struct bpf_tasks *tasks = &from->tasks;

	if (!thread->layout.known || from->generation != thread->generation ||
	    !(from->flags & BPF_TASKS_KNOWN))
		return false;
	fill_task(thread, tasks->words[0], &seen->current);
	seen->scheduled.at = 0;
	if (!tasks->words[1][BPF_TASK_AT])
		return true;
	/* During a context switch only the stack in use shows which task runs. */
	if (from->rip >> 63 && !(from->flags & BPF_RSP_KNOWN))
		return false;
	fill_task(thread, tasks->words[1], &seen->scheduled);
	return true;
}

/* Without duplicates; returns their number. */
static uint32_t fill_pages(const struct bpf_whole_sample *from, struct attach_page *pages)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < from->head.addresses && count < ATTACH_PAGES_MAX; i++) {
		const struct attach_page page = { from->addresses[i].gva & ~0xfffull,
						  from->addresses[i].page };
		uint32_t at = 0;

		if (page.gpa == BPF_NO_PAGE)
			continue;
		while (at < count && pages[at].gva != page.gva)
			at++;
		pages[at] = page;
		count += at == count;
	}
	return count;
}

_Static_assert((int)ATTACH_STACKS == BPF_STACKS && (int)ATTACH_STACK_USER == BPF_STACK_USER &&
		       (int)ATTACH_STACK_BELOW == BPF_STACK_BELOW,
	       "the kinds of stacks are equal");

static void fill_stacks(const struct bpf_whole_sample *from, struct attach_guest_state *stack)
{
	stack->copied = from->head.copied;
	for (unsigned int i = 0; stack->copied && i < BPF_STACKS; i++)
		stack->stacks[i] = (struct attach_stack){
			.gva = from->head.stacks[i].gva,
			.size = from->head.stacks[i].size,
			.bytes = from->stack + from->head.stacks[i].at,
		};
}

_Static_assert(ATTACH_EXITS == 1 << (BPF_EVENT_EXIT - 1) &&
		       ATTACH_OFF_CPU == 1 << (BPF_EVENT_OFF_CPU - 1),
	       "the events are equal");

static void describe_outside(const struct bpf_sample *from, char *text, size_t size)
{
	static const char *const off_cpu[] = {
		[BPF_PREEMPTED] = "preempted", [BPF_HALTED] = "halted", [BPF_BLOCKED] = "blocked"
	};
	char name[EXIT_NAME_SIZE];

	if (from->event != BPF_EVENT_OFF_CPU)
		snprintf(text, size, "exit %s",
			 exit_reason_name(from->isa, (uint32_t)from->reason, name));
	else
		snprintf(text, size, "off-cpu %s", off_cpu[from->reason % BPF_OFF_CPU_REASONS]);
}

/* The chain is at the end. Longer ones lose their outermost entries, as perf's. */
static void fill_host(const struct bpf_sample *from, struct attach_guest_state *state)
{
	__u32 depth = from->host_kernel + from->host_user, kernel = from->host_kernel;

	if (!depth || depth > from->size / sizeof(__u64))
		return;
	state->host = (const uint64_t *)(const void *)((const char *)from + from->size) - depth;
	kernel = kernel < SAMPLE_HOST_CHAIN_MAX ? kernel : SAMPLE_HOST_CHAIN_MAX;
	depth = depth < SAMPLE_HOST_CHAIN_MAX ? depth : SAMPLE_HOST_CHAIN_MAX;
	state->host_kernel = (uint8_t)kernel;
	state->host_user = (uint8_t)(depth - kernel);
}

static void emit_sample(const struct attach_source *source, const struct bpf_thread *thread,
			const struct bpf_whole_sample *from)
{
	const struct attach_sink *sink = &source->target->sink;
	const struct bpf_sample *head = &from->head;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	struct guest_callchain chain = { .capacity = SAMPLE_CALLCHAIN_MAX, .addresses = addresses };
	bool guest = head->flags & BPF_IN_GUEST, nested = head->flags & BPF_NESTED;
	bool known = guest && head->flags & BPF_CR3_KNOWN;
	uint8_t other = nested ? SAMPLE_OTHER_KERNEL : 0;
	struct attach_page pages[ATTACH_PAGES_MAX];
	struct guest_tasks_snapshot tasks;
	char outside[sizeof(struct sample_outside)];
	struct attach_guest_state stack = { .cr3_of_task = !known,
					    .clock_known = head->flags & BPF_CLOCK_KNOWN,
					    .clock = head->clock,
					    .tasks = fill_tasks(thread, head, &tasks) ? &tasks
										      : NULL,
					    .pages = pages,
					    .page_count = fill_pages(from, pages) };
	struct sample sample = {
		.time = head->time + source->raw_offset,
		.period = head->period,
		.rip = head->rip,
		.rsp = guest && head->flags & BPF_RSP_KNOWN ? head->rsp : 0,
		.rbp = guest ? head->rbp : 0,
		.cr3 = known ? head->cr3 : 0,
		.vcpu = thread->vcpu.id,
		.host_tid = head->tid,
		.cost = head->cost,
		.cpl = level_of(head),
		.flags = guest ? other : SAMPLE_HOST,
	};

	fill_chain(from, &chain, !sample.cpl);
	fill_stacks(from, &stack);
	fill_host(head, &stack);
	if (head->event || head->flags & BPF_REASON_KNOWN) {
		describe_outside(head, outside, sizeof(outside));
		stack.outside = outside;
	}
	if (head->event) {
		sample.event =
			attach_outside_event(source->target->outside, 1u << (head->event - 1));
	}
	if (guest && !nested)
		fill_registers(head, sample.cpl, &stack.registers);
	sink->sample(sink->context, &sample, &chain,
		     (guest && !nested) || head->event || stack.host ? &stack : NULL);
}

/* If KVM has not read RIP, the value is stale. */
static void emit_record(struct attach_source *source, const struct bpf_thread *thread,
			const struct bpf_whole_sample *record)
{
	const struct attach_sink *sink = &source->target->sink;
	const struct bpf_sample *head = &record->head;

	if (head->flags & BPF_IN_GUEST && !(head->flags & BPF_RIP_KNOWN)) {
		sink->lost(sink->context, thread->vcpu.id, 1);
	} else {
		emit_sample(source, thread, record);
		source->emitted++;
	}
}

void bpf_source_drain(struct attach_source *source, struct bpf_thread *thread)
{
	const struct attach_sink *sink = &source->target->sink;
	struct bpf_ring *ring = &thread->memory.ring;
	const struct bpf_whole_sample *record;
	uint64_t lost = bpf_ring_consume_lost(ring), end = bpf_ring_end(ring);

	while ((record = bpf_ring_first(ring, end))) {
		emit_record(source, thread, record);
		bpf_ring_release(ring, record);
	}
	if (lost)
		sink->lost(sink->context, thread->vcpu.id, lost);
}

/* All reads take the same time, so consecutive words of one structure, those of [FIRST, END), are
 * read at once. */
static void join_words(struct bpf_cpu *cpu, size_t first, size_t end)
{
	size_t run = first;

	for (size_t i = first; i < end; i++)
		cpu->sizes[i] = 8;
	for (size_t i = first + 1; i < end; i++) {
		if (cpu->offsets[i] == cpu->offsets[run] + (i - run) * 8)
			cpu->sizes[run] = (uint32_t)(i - run + 1) * 8;
		else if (cpu->offsets[i] != cpu->offsets[i - 1]) /* of another word */
			run = i;
		if (run != i)
			cpu->sizes[i] = 0;
	}
}

static void set_offsets(struct bpf_cpu *cpu, const struct guest_task_layout *layout,
			const struct guest_vma_layout *vmas)
{
	const uint32_t offsets[BPF_TASK_ROOM] = {
		[BPF_TASK_STACK] = layout->stack,
		[BPF_TASK_MM] = layout->mm,
		[BPF_TASK_PID] = layout->pid,
		[BPF_TASK_TGID] = layout->tgid,
		[BPF_TASK_COMM] = layout->comm,
		[BPF_TASK_COMM + 1] = layout->comm + 8,
		[BPF_TASK_COMM + 2] = layout->comm + 16,
		/* If unknown, it is part of the previous word, and not read. */
		[BPF_TASK_SET] =
			layout->cgroups.known ? layout->cgroups.task_set : layout->comm + 16,
		[BPF_TASK_LEADER] = layout->parent ? layout->leader : layout->comm + 16,
		[BPF_TASK_PAGE_TABLE] = layout->page_table,
		[BPF_TASK_SPACE] = vmas->mm_space,
		[BPF_TASK_CHANGES] = vmas->mm_changes,
		[BPF_TASK_STARTED] = layout->started,
		[BPF_TASK_PARENT] = layout->parent,
		[BPF_TASK_PROCESS_COMM] = layout->comm,
		[BPF_TASK_PROCESS_COMM + 1] = layout->comm + 8,
		[BPF_TASK_PROCESS_COMM + 2] = layout->comm + 16,
		[BPF_TASK_PARENT_TGID] = layout->tgid,
	};

	for (size_t i = 0; i < BPF_TASK_WORDS; i++)
		cpu->offsets[i] = offsets[i] & ~7u;
}

void bpf_task_words_set(struct bpf_cpu *cpu, const struct guest_task_layout *layout,
			const struct guest_vma_layout *vmas)
{
	set_offsets(cpu, layout, vmas);
	cpu->sizes[BPF_TASK_AT] = 8;
	join_words(cpu, BPF_TASK_STACK, BPF_TASK_PAGE_TABLE);
	join_words(cpu, BPF_TASK_PAGE_TABLE, BPF_TASK_STARTED);
	join_words(cpu, BPF_TASK_STARTED, BPF_TASK_PARENT_TGID);
	join_words(cpu, BPF_TASK_PARENT_TGID, BPF_TASK_WORDS);
	for (size_t i = BPF_TASK_SPACE; !vmas->has_changes && i < BPF_TASK_STARTED; i++)
		cpu->sizes[i] = 0;
	for (size_t i = BPF_TASK_STARTED; !layout->parent && i < BPF_TASK_WORDS; i++)
		cpu->sizes[i] = 0;
}

/* Minimum sizes of memslots if there are too many for all. */
#define SIZE_FIRST (64ull << 10)
#define SIZE_LAST  (1ull << 40)

struct slot_list {
	struct vmm_slot *slots;
	int count;
	uint64_t generation;    /* common generation of all slots; BPF_NO_GENERATION: they changed
				   meanwhile */
	uint64_t vm_generation; /* of the VM reported last */
};

static void add_slot(void *context, const struct bpf_found *found)
{
	struct slot_list *list = context;

	if (found->type == BPF_FOUND_VM)
		list->vm_generation = found->generation;
	if (found->type == BPF_FOUND_SLOT && !list->count)
		list->generation = list->vm_generation;
	if (found->type == BPF_FOUND_SLOT && found->generation != list->generation)
		list->generation = BPF_NO_GENERATION;
	if (found->type == BPF_FOUND_SLOT && found->size && list->count < VMM_SLOTS_MAX)
		list->slots[list->count++] =
			(struct vmm_slot){ found->gpa, found->size, found->hva };
}

static int larger_first(const void *left, const void *right)
{
	const struct vmm_slot *one = left, *other = right;

	return one->size < other->size ? 1 : one->size > other->size ? -1 : 0;
}

static int collect(int pid_fd, int vm_fd, struct slot_list *list)
{
	uint64_t size_min = 0;
	int error;

	for (;;) {
		list->count = 0;
		list->generation = BPF_NO_GENERATION;
		error = bpf_programs_iterate(pid_fd, vm_fd, size_min, add_slot, list);
		if ((error != -E2BIG && list->count < VMM_SLOTS_MAX) || size_min >= SIZE_LAST)
			return error;
		size_min = size_min ? size_min * 4 : SIZE_FIRST;
	}
}

/* The program searches a few: stacks and page tables are in the large ones. */
static void choose_slots(struct bpf_slots *largest, const struct slot_list *list)
{
	*largest = (struct bpf_slots){ .generation_of_kvm = list->generation };
	for (int i = 0; i < list->count && i < BPF_SLOTS_MAX; i++) {
		largest->slot[i].gpa = list->slots[i].gpa;
		largest->slot[i].size = list->slots[i].size;
		largest->slot[i].hva = list->slots[i].hva;
		largest->count++;
	}
}

int bpf_slots_find(int pid_fd, int vm_fd, struct vmm_slot *slots, struct bpf_slots *largest)
{
	struct slot_list list = { .slots = slots };
	int error = collect(pid_fd, vm_fd, &list);

	if (error)
		return error;
	if (!list.count)
		return error_set(-ENOTSUP, "BPF finds no memslots in this kernel");
	qsort(slots, (size_t)list.count, sizeof(slots[0]), larger_first);
	choose_slots(largest, &list);
	return list.count;
}

void bpf_slots_publish(struct bpf_slots *shared, const struct bpf_slots *slots)
{
	__u32 generation = shared->generation;

	__atomic_store_n(&shared->generation, generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	shared->count = slots->count;
	shared->generation_of_kvm = slots->generation_of_kvm;
	memcpy(shared->slot, slots->slot, sizeof(shared->slot));
	__atomic_store_n(&shared->generation, generation + 2, __ATOMIC_RELEASE);
}
