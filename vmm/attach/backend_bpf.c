// SPDX-License-Identifier: Apache-2.0
/*
 * A BPF program on a perf event of each vCPU thread (bpf/guest_sample.c): it
 * reads the guest's registers where KVM keeps them, and its callers from guest
 * memory, in the interrupt that the thread took anyway. What it found comes through a
 * ring of BPF's, which wakes nobody but who has read all that was in it.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/bpf_programs.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/perf_event.h"

#define NANOSECONDS     1000000000ull
#define CLOCK_TRIES     5
#define RING_SIZE_LEAST (256u << 10)
#define RING_SIZE_MOST  (4u << 20)
/* Of memslots, where there are so many that small ones are left out. */
#define SLOT_SIZE_FIRST (64ull << 10)
#define SLOT_SIZE_LAST  (1ull << 40)
#define NO_SLOTS        UINT64_MAX
#define CR4_LA57        (1ull << 12) /* SDM vol. 3A 2.5 */
/* A callchain is in few pages of code. */
#define PAGES_MAX 32

struct bpf_thread {
	struct vmm_vcpu vcpu;
	int event_fd;
	struct bpf_link *link; /* owns event_fd */
	__u32 tid;             /* in the first PID namespace */
	__u64 address;         /* of its struct kvm_vcpu */
	__u64 lost;            /* that were told */
	/* Of the kernel whose tasks are seen, and of what the program was told of them. */
	struct guest_task_layout layout;
	__u32 generation;
	struct bpf_thread *next;
};

struct attach_source {
	const struct attach_target *target;
	struct perf_event_choice choice;
	struct bpf_vm *vm;
	struct ring_buffer *ring;   /* the VM's */
	struct bpf_thread *threads; /* owned */
	uint32_t ring_size;         /* bytes */
	__u32 generation;           /* that was told last; no two threads have the same */
	uint64_t raw_ahead;         /* ns: CLOCK_MONOTONIC_RAW less CLOCK_MONOTONIC, modulo 2^64 */
};

static uint64_t time_by(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * NANOSECONDS + (uint64_t)time.tv_nsec;
}

/* BPF has no raw clock; the two drift by what adjusts the one, 500 ppm at the most. */
static void compare_clocks(struct attach_source *source)
{
	uint64_t shortest = UINT64_MAX;

	/* Of a try that was interrupted, nobody knows when in it. */
	for (int i = 0; i < CLOCK_TRIES; i++) {
		uint64_t before = time_by(CLOCK_MONOTONIC), raw = time_by(CLOCK_MONOTONIC_RAW);
		uint64_t took = time_by(CLOCK_MONOTONIC) - before;

		if (took >= shortest)
			continue;
		shortest = took;
		source->raw_ahead = raw - (before + took / 2);
	}
}

/*
 * Of BPF's ring: what half a second of samples takes, with a stack each, as far as there may be so much. It
 * is mapped twice and all at once, and a daemon has one for each VM.
 */
static uint32_t ring_size(const struct attach_target *target)
{
	uint64_t wanted = (uint64_t)target->process->vcpu_count * target->frequency *
			  (sizeof(struct bpf_sample) + BPF_STACK_MAX) / 2;
	uint32_t size = RING_SIZE_LEAST;

	while (size < wanted && size < RING_SIZE_MOST)
		size *= 2;
	return size;
}

/* With a stack each; the ring has a header of 8 bytes for each (kernel: BPF_RINGBUF_HDR_SZ). */
static size_t room(const struct attach_source *source)
{
	return source->ring_size / (sizeof(struct bpf_sample) + BPF_STACK_MAX + 8);
}

/* The sink's side. */

static void fill_chain(const struct bpf_whole_sample *from, struct guest_callchain *chain, bool kernel)
{
	uint16_t depth = 0;

	chain->addresses[depth++] = from->head.registers[BPF_RIP];
	for (uint32_t i = 1; i < from->head.addresses && depth < chain->capacity; i++)
		chain->addresses[depth++] = from->addresses[i].gva;
	chain->kernel_depth = kernel ? depth : 0;
	chain->user_depth = kernel ? 0 : depth;
	if (!kernel && (from->head.flags & BPF_CHAIN_CUT || depth < from->head.addresses))
		chain->flags |= SAMPLE_USER_TRUNCATED;
}

/* Where KVM keeps the level in registers of the processor alone, the address tells it, as Linux has it. */
static uint8_t level_of(const struct bpf_sample *from)
{
	if (!(from->flags & BPF_IN_GUEST) || from->flags & BPF_CPL_KNOWN)
		return (uint8_t)(from->cpl & 3);
	return from->registers[BPF_RIP] >> 63 ? 0 : 3;
}

static void fill_registers(const struct bpf_sample *from, uint8_t level, struct guest_registers *registers)
{
	const struct guest_paging paging = {
		.cr3 = from->cr3, .cr4 = from->cr4, .efer = from->efer, .cr0 = from->cr0
	};

	kernel_tables_registers(&paging, registers);
	registers->rip = from->registers[BPF_RIP];
	registers->rsp = from->registers[BPF_RSP];
	registers->rbp = from->registers[BPF_RBP];
	registers->rdx = from->registers[BPF_RDX];
	registers->rdi = from->registers[BPF_RDI];
	registers->r10 = from->registers[BPF_R8 + 2];
	registers->r13 = from->registers[BPF_R8 + 5];
	registers->cpl = level;
}

static uint32_t half_word(const __u64 *task, enum bpf_task_word word, uint32_t offset)
{
	return (uint32_t)(task[word] >> (offset & 7) * 8);
}

static void fill_task(const struct guest_task_layout *layout, const __u64 *task, struct guest_task_seen *seen)
{
	const uint8_t *comm = (const uint8_t *)&task[BPF_TASK_COMM] + (layout->comm & 7);

	*seen = (struct guest_task_seen){
		.at = task[BPF_TASK_AT],
		.stack = task[BPF_TASK_STACK],
		.mm = task[BPF_TASK_MM],
		.page_table = task[BPF_TASK_MM] ? task[BPF_TASK_PAGE_TABLE] : 0,
		.pid = half_word(task, BPF_TASK_PID, layout->pid),
		.tgid = half_word(task, BPF_TASK_TGID, layout->tgid),
	};
	memcpy(seen->comm, comm, sizeof(seen->comm));
}

static const struct bpf_thread *find_thread(const struct attach_source *source, unsigned int id)
{
	const struct bpf_thread *thread = source->threads;

	while (thread && thread->vcpu.id != id)
		thread = thread->next;
	return thread;
}

/* What is behind the head, but for the tasks. */
static size_t size_behind(const struct bpf_sample *head)
{
	return head->stack_size + head->addresses * sizeof(struct bpf_address);
}

static bool fill_tasks(const struct attach_source *source, const struct bpf_sample *from,
		       struct guest_tasks_seen *seen)
{
	const struct bpf_thread *thread = find_thread(source, from->vcpu);
	struct bpf_tasks tasks;

	if (!thread || !thread->layout.known || from->generation != thread->generation ||
	    !(from->flags & BPF_TASKS_KNOWN))
		return false;
	memcpy(&tasks, (const uint8_t *)(from + 1) + size_behind(from), sizeof(tasks));
	fill_task(&thread->layout, tasks.words[0], &seen->current);
	seen->scheduled.at = 0;
	if (tasks.words[1][BPF_TASK_AT])
		fill_task(&thread->layout, tasks.words[1], &seen->scheduled);
	return true;
}

/* Each once; how many. */
static uint32_t fill_pages(const struct bpf_whole_sample *from, struct attach_page *pages)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < from->head.pages && count < PAGES_MAX; i++) {
		const struct attach_page page = { from->addresses[i].gva & ~0xfffull,
						  from->addresses[i].page };
		uint32_t at = 0;

		while (at < count && pages[at].gva != page.gva)
			at++;
		pages[at] = page;
		count += at == count;
	}
	return count;
}

static void give(const struct attach_source *source, const struct bpf_whole_sample *from)
{
	const struct attach_sink *sink = &source->target->sink;
	const struct bpf_sample *head = &from->head;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	struct guest_callchain chain = { .capacity = SAMPLE_CALLCHAIN_MAX, .addresses = addresses };
	bool guest = head->flags & BPF_IN_GUEST, known = guest && head->flags & BPF_CR3_KNOWN;
	uint8_t other = head->flags & BPF_NESTED ? SAMPLE_OTHER_KERNEL : 0;
	struct attach_page pages[PAGES_MAX];
	struct guest_tasks_seen tasks;
	struct attach_stack stack = { .bytes = head->stack_size ? from->stack : NULL,
				      .size = head->stack_size,
				      .tasks = fill_tasks(source, head, &tasks) ? &tasks : NULL,
				      .pages = pages,
				      .page_count = fill_pages(from, pages) };
	struct sample sample = {
		.time = head->time + source->raw_ahead,
		.period = head->period,
		.rip = head->registers[BPF_RIP],
		.rsp = guest ? head->registers[BPF_RSP] : 0,
		.rbp = guest ? head->registers[BPF_RBP] : 0,
		.cr3 = known ? head->cr3 : 0,
		.vcpu = head->vcpu,
		.host_tid = head->tid,
		.cost = (uint32_t)head->cost,
		.cpl = level_of(head),
		.flags = guest ? other : SAMPLE_HOST,
	};

	fill_chain(from, &chain, !sample.cpl);
	if (known)
		fill_registers(head, sample.cpl, &stack.registers);
	sink->sample(sink->context, &sample, &chain, known ? &stack : NULL);
}

/* Of SIZE bytes, is that what the program writes? */
static bool is_whole(const struct bpf_sample *head, size_t size)
{
	size_t tasks = size >= sizeof(*head) && head->flags & BPF_TASKS_KNOWN ? sizeof(struct bpf_tasks) : 0;

	return size >= sizeof(*head) && head->addresses <= BPF_ADDRESSES_MAX &&
	       head->pages <= head->addresses && head->stack_size <= BPF_STACK_MAX &&
	       !(head->stack_size && head->addresses) && size - sizeof(*head) >= size_behind(head) + tasks;
}

/* A guest's RIP that KVM had not read would be an old one. */
static int take_record(void *context, void *data, size_t size)
{
	struct attach_source *source = context;
	const struct bpf_sample *head = data;

	if (!is_whole(head, size))
		return 0;
	if (head->flags & BPF_IN_GUEST && !(head->flags & BPF_RIP_KNOWN))
		source->target->sink.lost(source->target->sink.context, head->vcpu, 1);
	else
		give(source, data);
	return 0;
}

static void tell_lost(struct attach_source *source, struct bpf_thread *thread)
{
	const struct attach_sink *sink = &source->target->sink;
	struct bpf_vcpu vcpu;

	if (bpf_vm_get_vcpu(source->vm, thread->vcpu.id, &vcpu) || vcpu.lost <= thread->lost)
		return;
	sink->lost(sink->context, thread->vcpu.id, vcpu.lost - thread->lost);
	thread->lost = vcpu.lost;
}

static int events_of(const struct attach_source *source)
{
	return ring_buffer__epoll_fd(source->ring);
}

/* What is lost finds a ring that is full. */
static void drain(struct attach_source *source)
{
	compare_clocks(source);
	if (ring_buffer__consume(source->ring) <= 0)
		return;
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next)
		tell_lost(source, thread);
}

/* Memslots. */

struct slot_list {
	struct vmm_slot *slots;
	int count;
};

static void take_slot(void *context, const struct bpf_found *found)
{
	struct slot_list *list = context;

	if (found->type == BPF_FOUND_SLOT && found->size && list->count < VMM_SLOTS_MAX)
		list->slots[list->count++] = (struct vmm_slot){ found->gpa, found->size, found->hva };
}

static int larger_first(const void *left, const void *right)
{
	const struct vmm_slot *one = left, *other = right;

	return one->size < other->size ? 1 : one->size > other->size ? -1 : 0;
}

/* The program looks through a few: stacks and page tables lie in the large ones. */
static int give_slots(struct attach_source *source, const struct slot_list *list)
{
	struct bpf_slots given = { 0 };

	for (int i = 0; i < list->count && i < BPF_SLOTS_MAX; i++) {
		given.slot[i].gpa = list->slots[i].gpa;
		given.slot[i].size = list->slots[i].size;
		given.slot[i].hva = list->slots[i].hva;
		given.count++;
	}
	return bpf_vm_set_slots(source->vm, &given);
}

/* Where there are too many, the small ones are left out: what lies in them can not be read then. */
static int look_for_slots(struct attach_source *source, struct slot_list *list)
{
	uint64_t size_min = 0;
	int error;

	for (;;) {
		list->count = 0;
		error = bpf_programs_look(source->target->process->pid_fd, size_min, take_slot, list);
		if ((error != -E2BIG && list->count < VMM_SLOTS_MAX) || size_min >= SLOT_SIZE_LAST)
			return error;
		size_min = size_min ? size_min * 4 : SLOT_SIZE_FIRST;
	}
}

static int find_slots(struct attach_source *source, struct vmm_slot *slots)
{
	struct slot_list list = { .slots = slots };
	int error = look_for_slots(source, &list);

	if (error)
		return error;
	qsort(slots, (size_t)list.count, sizeof(slots[0]), larger_first);
	if (!list.count || give_slots(source, &list))
		return error_set(-ENOTSUP, "BPF finds no memslots in this kernel");
	return list.count;
}

/* vCPUs. */

/* Tells the program which vCPU the thread runs. */
static int know_vcpu(struct attach_source *source, struct bpf_thread *thread, const struct bpf_found *found)
{
	const struct bpf_vcpu value = {
		.vcpu = found->vcpu,
		.pid = found->pid,
		.id = thread->vcpu.id,
		.tid = found->tid,
		.inner_tid = (__u32)thread->vcpu.tid,
		.want_chains = source->target->callchains,
		.by_nmi = source->choice.event == ATTACH_CYCLES,
	};
	int error;

	thread->tid = found->tid;
	thread->address = found->vcpu;
	thread->lost = 0;
	error = bpf_vm_set_vcpu(source->vm, thread->vcpu.id, &value);
	return error ? error_set(error, "no room for vCPU %u in a BPF map: %s", thread->vcpu.id,
				 strerror(-error))
		     : 0;
}

/* A VMM may make its VM anew, with the same threads and ids. */
static void follow_vcpu(struct attach_source *source, const struct bpf_found *found)
{
	for (struct bpf_thread *thread = source->threads; thread; thread = thread->next) {
		if (thread->vcpu.id != found->id || thread->tid != found->tid ||
		    thread->address == found->vcpu)
			continue;
		log_debug("vCPU %u was made anew", found->id);
		tell_lost(source, thread);
		if (know_vcpu(source, thread, found))
			log_debug("%s", error_message());
	}
}

struct thread_list {
	struct attach_source *source;
	struct vmm_process *process;
};

/* Of the thread's two numbers, the one that our /proc knows. */
static void take_thread(void *context, const struct bpf_found *found)
{
	const struct thread_list *list = context;

	if (found->type != BPF_FOUND_VCPU || !found->tid)
		return;
	if (!vmm_process_learn_thread(list->process, found->id, (pid_t)found->tid))
		vmm_process_learn_thread(list->process, found->id, (pid_t)found->inner_tid);
	follow_vcpu(list->source, found);
}

static void find_threads(struct attach_source *source, struct vmm_process *process)
{
	struct thread_list list = { .source = source, .process = process };

	if (bpf_programs_look(process->pid_fd, NO_SLOTS, take_thread, &list))
		log_debug("%s", error_message());
}

struct vcpu_search {
	const struct vmm_vcpu *wanted;
	struct bpf_found found;
};

static void take_vcpu(void *context, const struct bpf_found *found)
{
	struct vcpu_search *search = context;

	if (found->type == BPF_FOUND_VCPU && found->id == search->wanted->id)
		search->found = *found;
}

static int find_vcpu(struct attach_source *source, struct bpf_thread *thread)
{
	struct vcpu_search search = { .wanted = &thread->vcpu };
	int error = bpf_programs_look(source->target->process->pid_fd, NO_SLOTS, take_vcpu, &search);

	if (error)
		return error;
	if (!search.found.vcpu || !search.found.tid)
		return error_set(-ESRCH, "vCPU %u has gone", thread->vcpu.id);
	return know_vcpu(source, thread, &search.found);
}

/* Tasks. */

static void choose_words(struct bpf_cpu *cpu, const struct guest_task_layout *layout)
{
	const uint32_t offsets[BPF_TASK_ROOM] = {
		[BPF_TASK_STACK] = layout->stack,
		[BPF_TASK_MM] = layout->mm,
		[BPF_TASK_PID] = layout->pid,
		[BPF_TASK_TGID] = layout->tgid,
		[BPF_TASK_COMM] = layout->comm,
		[BPF_TASK_COMM + 1] = layout->comm + 8,
		[BPF_TASK_COMM + 2] = layout->comm + 16,
		[BPF_TASK_PAGE_TABLE] = layout->page_table,
	};

	for (size_t i = 0; i < BPF_TASK_WORDS; i++)
		cpu->offsets[i] = offsets[i] & ~7u;
}

/*
 * Samples that were taken before are of what was known before, also those that were begun before and come
 * after the drain: of one that has the new generation, all was read after the whole of it was there.
 */
static void see_tasks(struct attach_source *source, unsigned int id, const struct attach_cpu *cpu)
{
	struct bpf_thread *thread = (struct bpf_thread *)(uintptr_t)find_thread(source, id);
	struct bpf_cpu told = { 0 };

	if (!thread)
		return;
	drain(source);
	thread->layout = cpu->layout;
	thread->generation = source->generation = source->generation + 1 ? source->generation + 1 : 1;
	told.cr3 = cpu->paging.cr3;
	told.levels = cpu->paging.cr4 & CR4_LA57 ? 5 : 4;
	told.tasks[0] = cpu->offset + cpu->layout.current;
	told.tasks[1] = cpu->layout.scheduled ? cpu->offset + cpu->layout.scheduled : 0;
	choose_words(&told, &cpu->layout);
	bpf_vm_set_cpu(source->vm, id, &told);
	told.generation = thread->generation;
	bpf_vm_set_cpu(source->vm, id, &told);
}

static int sample_thread(struct attach_source *source, struct bpf_thread *thread)
{
	int error;

	thread->event_fd = perf_event_open_thread(&source->choice.attribute, thread->vcpu.tid);
	if (thread->event_fd < 0)
		return perf_event_explain(thread->event_fd, source->target->process->pid);
	error = bpf_vm_sample(source->vm, thread->vcpu.id, thread->event_fd, &thread->link);
	if (error)
		close(thread->event_fd);
	return error;
}

static void forget(struct attach_source *source, struct bpf_thread *thread)
{
	bpf_link__destroy(thread->link); /* closes the event, too */
	if (thread->tid) {
		bpf_vm_set_vcpu(source->vm, thread->vcpu.id, &(const struct bpf_vcpu){ 0 });
		bpf_vm_set_cpu(source->vm, thread->vcpu.id, &(const struct bpf_cpu){ 0 });
	}
	free(thread);
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	struct bpf_thread *thread = calloc(1, sizeof(*thread));
	int error;

	if (!thread)
		return error_set(-ENOMEM, "no memory for a perf event");
	thread->vcpu = *vcpu;
	error = find_vcpu(source, thread);
	if (!error)
		error = sample_thread(source, thread);
	if (error) {
		forget(source, thread);
		return error;
	}
	thread->next = source->threads;
	source->threads = thread;
	return 0;
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	struct bpf_thread **link = &source->threads;

	while (*link && (*link)->vcpu.id != id)
		link = &(*link)->next;
	if (*link) {
		struct bpf_thread *gone = *link;

		drain(source);
		*link = gone->next;
		forget(source, gone);
	}
}

static bool close_bpf(struct attach_source *source)
{
	while (source->threads)
		remove_vcpu(source, source->threads->vcpu.id);
	ring_buffer__free(source->ring);
	bpf_vm_close(source->vm);
	free(source);
	return true;
}

static int check_vcpu(struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct vcpu_search search = { .wanted = &process->vcpus[0] };
	int error = bpf_programs_look(source->target->process->pid_fd, NO_SLOTS, take_vcpu, &search);

	if (error)
		return error;
	return search.found.vcpu
		       ? 0
		       : error_set(-ENOTSUP, "BPF does not find the vCPUs of process %d in this kernel",
				   process->pid);
}

static int open_all(struct attach_source *source)
{
	const struct attach_target *target = source->target;
	int error = perf_event_choose(&source->choice, target->process->pid, target->frequency);

	source->ring_size = ring_size(target);
	if (!error)
		error = bpf_vm_open(&source->vm, source->ring_size, target->vcpus_max);
	if (!error)
		error = check_vcpu(source);
	if (error)
		return error;
	if (target->callchains && bpf_programs_are_intel())
		log_info(
			"kvm_intel does not tell a guest's stack pointer and page tables: most samples have no "
			"callers by bpf; --backend ptrace takes them");
	source->ring = ring_buffer__new(bpf_vm_ring_fd(source->vm), take_record, source, NULL);
	return source->ring ? 0 : error_set(-errno, "can not map BPF's ring: %s", strerror(errno));
}

static int open_bpf(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for BPF programs");
	source->target = target;
	error = open_all(source);
	if (error)
		close_bpf(source);
	else
		*result = source;
	return error;
}

static void ignore(void *context, const struct bpf_found *found)
{
}

static int look_at_self(void)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), error;

	if (self < 0)
		return error_set(-errno, "pidfd_open(): %s", strerror(errno));
	error = bpf_programs_look(self, 0, ignore, NULL);
	close(self);
	return error;
}

/* Whether KVM's types are known shows where a VM is. */
static int probe(void)
{
	struct bpf_vm *vm;
	int error = bpf_vm_open(&vm, RING_SIZE_LEAST, 1);

	if (error)
		return error;
	error = look_at_self();
	bpf_vm_close(vm);
	return error;
}

static enum attach_event event_of(const struct attach_source *source)
{
	return source->choice.event;
}

const struct attach_backend attach_bpf = {
	.name = "bpf",
	.is = "a BPF program in the kernel: where the guest was and its callers, nothing is stopped",
	.gives_callers = true,
	.probe = probe,
	.open = open_bpf,
	.event = event_of,
	.slots = find_slots,
	.threads = find_threads,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.events = events_of,
	.see_tasks = see_tasks,
	.room = room,
	.drain = drain,
	.close = close_bpf,
};
