/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/task_find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/per_cpu.h"
#include "vmm/guest/linux/task_layout.h"
#include "vmm/guest/page_walk.h"

/* Bytes of a task; a kernel with all options needs about 14 KiB. */
#define TASK_MAX 16384u
/* Bytes at the start of struct mm_struct; what follows depends on the number of CPUs. */
#define MEMORY_MAX 4096u
/* Links followed in all lists. A guest with 10 000 processes has less than half of that. */
#define LINKS_MAX 65536u
/* Polls of the CPUs for one that runs a task without memory. */
#define RUNNING_POLLS  1024u
#define CPUS_MAX       64u
#define CANDIDATES_MAX 4u
#define PAGE           4096u
/* struct pcpu_hot, 6.2 to 6.14 (arch/x86/include/asm/current.h), in words. */
#define HOT_WORDS 8u
/* TOP_OF_KERNEL_STACK_PADDING, of kernels with FRED. */
#define STACK_PADDING 16u

struct task_bytes {
	uint64_t at; /* GVA; 0: not found */
	uint8_t bytes[TASK_MAX];
};

/* Byte offsets at which something was found. */
struct candidates {
	size_t count; /* CANDIDATES_MAX + 1: more than are stored */
	uint32_t offsets[CANDIDATES_MAX];
};

struct search {
	struct kernel_memory memory;
	const struct guest_kernel *kernel;
	const struct reported_tasks *reported;
	struct guest_task_layout *layout;
	uint64_t hot; /* per-CPU address of pcpu_hot; 0: the current task has a variable of its own
		       */
	size_t size;  /* of a task, at least */
	unsigned int links; /* that may still be followed */
	struct task_bytes first;
	struct task_bytes tasks[AGENT_TASKS_MAX]; /* the reported ones */
	size_t cpu_count;
	uint64_t cpus[CPUS_MAX];
};

static uint64_t word_at(const struct task_bytes *task, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, task->bytes + offset, sizeof(word));
	return word;
}

static uint32_t half_at(const struct task_bytes *task, uint32_t offset)
{
	uint32_t half;

	memcpy(&half, task->bytes + offset, sizeof(half));
	return half;
}

static bool is_pointer(uint64_t word)
{
	return word >= KERNEL_HALF && word % sizeof(word) == 0;
}

static void add_candidate(struct candidates *candidates, uint32_t offset)
{
	if (candidates->count < CANDIDATES_MAX)
		candidates->offsets[candidates->count] = offset;
	if (candidates->count <= CANDIDATES_MAX)
		candidates->count++;
}

static int check_single(const struct candidates *candidates, const char *what, uint32_t *offset)
{
	if (candidates->count == 1) {
		*offset = candidates->offsets[0];
		return 0;
	}
	return candidates->count
		       ? error_set(-ENOTUNIQ, "%s is at more than one offset of its tasks", what)
		       : error_set(-ENOENT, "%s is at no offset of its tasks", what);
}

static bool is_leader(const struct agent_task *task)
{
	return task->pid == task->tgid;
}

/* Up to the next symbol, which is after all of it. */
static int read_first(struct search *search)
{
	struct symbol symbol;

	if (!symbols_find_name(search->kernel->symbols, "init_task", &symbol))
		return error_set(-ENOENT, "its first task has no symbol");
	search->size = symbol.end - symbol.start < TASK_MAX ? (symbol.end - symbol.start) & ~7ull
							    : TASK_MAX;
	search->first.at = symbol.start;
	if (search->size < SAMPLE_COMM_SIZE ||
	    !kernel_memory_read(&search->memory, symbol.start, search->first.bytes, search->size))
		return error_set(-ENOENT, "its first task cannot be read");
	return 0;
}

/* init/init_task.c, INIT_TASK_COMM; with SMP the CPU number is appended. */
static int find_comm(struct search *search)
{
	static const char names[][SAMPLE_COMM_SIZE] = { "swapper/0", "swapper" };
	struct candidates candidates = { 0 };

	for (uint32_t at = 0; at + SAMPLE_COMM_SIZE <= search->size; at++)
		if (!memcmp(search->first.bytes + at, names[0], SAMPLE_COMM_SIZE) ||
		    !memcmp(search->first.bytes + at, names[1], SAMPLE_COMM_SIZE))
			add_candidate(&candidates, at);
	return check_single(&candidates, "the first task's name", &search->layout->comm);
}

/* The index of the reported task that a task at AT would be; negative: none. */
static int number_of(struct search *search, uint64_t at)
{
	char comm[SAMPLE_COMM_SIZE];

	if (!kernel_memory_read(&search->memory, at + search->layout->comm, comm, sizeof(comm)))
		return -1;
	comm[sizeof(comm) - 1] = '\0';
	for (size_t i = 0; i < search->reported->count; i++)
		if (!strcmp(comm, search->reported->tasks[i].comm))
			return (int)i;
	return -1;
}

/*
 * Is the list through OFFSET of the first task that of all processes? Then each reported process is
 * on it once, at the address stored in FOUND, and no thread is (for_each_process(),
 * include/linux/sched/signal.h). Other lists also have threads, or entries that are not tasks.
 */
static bool lists_processes(struct search *search, uint32_t offset, uint64_t *found)
{
	uint64_t head = search->first.at + offset, at = head, links[2];

	memset(found, 0, AGENT_TASKS_MAX * sizeof(found[0]));
	links[0] = word_at(&search->first, offset);
	while (links[0] != head) {
		uint64_t before = at;
		int number;

		at = links[0];
		if (!search->links || !is_pointer(at) ||
		    !kernel_memory_read(&search->memory, at, links, sizeof(links)) ||
		    links[1] != before)
			return false;
		search->links--;
		number = number_of(search, at - offset);
		if (number >= 0 && (found[number] || !is_leader(&search->reported->tasks[number])))
			return false;
		if (number >= 0)
			found[number] = at - offset;
	}
	for (size_t i = 0; i < search->reported->count; i++)
		if (is_leader(&search->reported->tasks[i]) != (found[i] != 0))
			return false;
	return true;
}

/* When the links are used up, the search is incomplete. */
static int check_links(const struct search *search)
{
	return search->links ? 0
			     : error_set(-E2BIG,
					 "its tasks are on more or longer lists than are followed");
}

static int find_list(struct search *search)
{
	uint64_t found[AGENT_TASKS_MAX], last[AGENT_TASKS_MAX] = { 0 };
	struct candidates candidates = { 0 };
	int error;

	for (uint32_t at = 0; at + 16 <= search->size; at += 8) {
		if (!is_pointer(word_at(&search->first, at)) || !lists_processes(search, at, found))
			continue;
		memcpy(last, found, sizeof(last));
		add_candidate(&candidates, at);
	}
	error = check_links(search);
	if (!error)
		error = check_single(&candidates, "the list of processes with those of the agent",
				     &search->layout->list);
	if (error)
		return error;
	search->layout->first = search->first.at;
	for (size_t i = 0; i < search->reported->count; i++)
		search->tasks[i].at = last[i];
	return 0;
}

static bool read_task(struct search *search, size_t number)
{
	struct task_bytes *task = &search->tasks[number];

	return kernel_memory_read(&search->memory, task->at, task->bytes, search->size);
}

/* The index of the reported task whose OFFSET a link in WORD leads to; negative: none. */
static int number_of_neighbour(struct search *search, uint64_t word, uint32_t offset)
{
	if (!is_pointer(word) || !search->links)
		return -1;
	search->links--;
	return number_of(search, word - offset);
}

/* Finds the reported threads that are next to task NUMBER on some list through both. */
static bool find_neighbours(struct search *search, size_t number)
{
	const struct task_bytes *task = &search->tasks[number];

	for (uint32_t at = 0; at + 8 <= search->size; at += 8) {
		uint64_t word = word_at(task, at);
		int neighbour = number_of_neighbour(search, word, at);
		struct task_bytes *thread;

		if (neighbour < 0 ||
		    search->reported->tasks[neighbour].tgid != search->reported->tasks[number].tgid)
			continue;
		thread = &search->tasks[neighbour];
		if (thread->at && thread->at != word - at)
			return false;
		thread->at = word - at;
	}
	return true;
}

/* Has the process of task NUMBER a reported thread that was not found yet? */
static bool has_more(const struct search *search, size_t number)
{
	for (size_t i = 0; i < search->reported->count; i++)
		if (!search->tasks[i].at &&
		    search->reported->tasks[i].tgid == search->reported->tasks[number].tgid)
			return true;
	return false;
}

/* Starting at the process, each thread is next to another one. */
static int find_threads(struct search *search)
{
	for (size_t pass = 0; pass < search->reported->count; pass++)
		for (size_t i = 0; i < search->reported->count; i++)
			if (search->tasks[i].at && has_more(search, i) &&
			    (!read_task(search, i) || !find_neighbours(search, i)))
				return error_set(-EAGAIN, "its tasks changed while they were read");
	if (check_links(search))
		return -E2BIG;
	for (size_t i = 0; i < search->reported->count; i++)
		if (!search->tasks[i].at || !read_task(search, i))
			return error_set(-ENOENT, "threads of the agent were not found");
	return 0;
}

static bool is_number(const struct search *search, uint32_t offset, bool of_process)
{
	if (half_at(&search->first, offset))
		return false;
	for (size_t i = 0; i < search->reported->count; i++) {
		const struct agent_task *reported = &search->reported->tasks[i];

		if (half_at(&search->tasks[i], offset) !=
		    (of_process ? reported->tgid : reported->pid))
			return false;
	}
	return true;
}

static int find_number(struct search *search, bool of_process, uint32_t *offset)
{
	struct candidates candidates = { 0 };

	for (uint32_t at = 0; at + 4 <= search->size; at += 4)
		if (is_number(search, at, of_process))
			add_candidate(&candidates, at);
	return check_single(&candidates,
			    of_process ? "the number of the process, in the agent's pid namespace,"
				       : "the number of the thread, in the agent's pid namespace,",
			    offset);
}

static bool is_stack(const struct search *search, uint32_t offset)
{
	for (size_t i = 0; i < search->reported->count; i++) {
		uint64_t stack = word_at(&search->tasks[i], offset);

		if (!is_pointer(stack) || stack % PAGE)
			return false;
		for (size_t j = 0; j < i; j++)
			if (stack == word_at(&search->tasks[j], offset))
				return false;
	}
	return true;
}

static int find_stack(struct search *search)
{
	struct candidates candidates = { 0 };
	uint64_t first;

	if (!guest_task_first_stack(search->kernel->symbols, &first))
		return error_set(-ENOENT, "the first task's stack has no symbol");
	for (uint32_t at = 0; at + 8 <= search->size; at += 8)
		if (word_at(&search->first, at) == first && is_stack(search, at))
			add_candidate(&candidates, at);
	return check_single(&candidates, "the stack", &search->layout->stack);
}

static int find_page_table(struct search *search)
{
	struct symbol memory, table;
	struct candidates candidates = { 0 };

	if (!symbols_find_name(search->kernel->symbols, "init_mm", &memory) ||
	    !symbols_find_name(search->kernel->symbols, "init_top_pgt", &table))
		return error_set(-ENOENT, "its own memory has no symbol");
	for (uint64_t at = memory.start; at + 8 <= memory.end && at < memory.start + MEMORY_MAX;
	     at += 8) {
		uint64_t word;

		if (kernel_memory_read_u64(&search->memory, at, &word) && word == table.start)
			add_candidate(&candidates, (uint32_t)(at - memory.start));
	}
	return check_single(&candidates, "the pointer to page tables", &search->layout->page_table);
}

/* Is the mark of REPORTED in the memory with the struct mm_struct at MM? */
static bool has_mark(struct search *search, uint64_t mm, const struct agent_task *reported)
{
	struct guest_paging paging = *search->memory.paging;
	uint8_t mark[AGENT_TASK_MARK];
	uint64_t table;

	return reported->marked < KERNEL_HALF &&
	       kernel_memory_read_u64(&search->memory, mm + search->layout->page_table, &table) &&
	       is_pointer(table) && kernel_memory_translate(&search->memory, table, &paging.cr3) &&
	       !guest_read_virtual(search->memory.view, &paging, reported->marked, mark,
				   sizeof(mark)) &&
	       !memcmp(mark, reported->mark, sizeof(mark));
}

static bool is_memory(struct search *search, uint32_t offset)
{
	for (size_t i = 0; i < search->reported->count; i++) {
		uint64_t mm = word_at(&search->tasks[i], offset);

		if (!is_pointer(mm) || !has_mark(search, mm, &search->reported->tasks[i]))
			return false;
	}
	return true;
}

/* The per-CPU offsets of all CPUs that have memory of their own. */
static void list_cpus(struct search *search)
{
	const struct guest_task_layout *layout = search->layout;
	uint64_t boot = guest_per_cpu_boot_offset(search->kernel), offset;

	search->cpus[0] = 0;
	search->cpu_count = !layout->offsets;
	for (uint32_t cpu = 0; cpu < layout->cpus && search->cpu_count < CPUS_MAX; cpu++)
		if (kernel_memory_read_u64(&search->memory, layout->offsets + cpu * 8ull,
					   &offset) &&
		    offset != boot)
			search->cpus[search->cpu_count++] = offset;
}

/* Is WORD the top of the STACK of a task? With FRED there is padding at its end. */
static bool is_top(const struct search *search, uint64_t word, uint64_t stack)
{
	uint64_t end = stack + search->layout->stack_size;

	return word == end || word == end - STACK_PADDING;
}

/* The index of the word that is the stack top of the task at word NUMBER; negative: none. */
static int top_of(struct search *search, const uint64_t *words, unsigned int number)
{
	uint64_t stack;

	if (!is_pointer(words[number]) ||
	    !kernel_memory_read_u64(&search->memory, words[number] + search->layout->stack,
				    &stack) ||
	    !is_pointer(stack) || stack % PAGE)
		return -1;
	for (unsigned int i = 0; i < HOT_WORDS; i++)
		if (is_top(search, words[i], stack))
			return (int)i;
	return -1;
}

/*
 * arch/x86/kernel/irq_64.c, map_irq_stack(): one word below the end of the stack. The last word of
 * pcpu_hot is not a stack but a call depth.
 */
static void find_irq_stack(struct search *search, const uint64_t *words, unsigned int top)
{
	struct candidates candidates = { 0 };

	for (unsigned int i = 0; i < HOT_WORDS; i++)
		if (i != top && is_pointer(words[i]) && words[i] + sizeof(words[i]) &&
		    (words[i] + sizeof(words[i])) % PAGE == 0)
			add_candidate(&candidates, i * (uint32_t)sizeof(words[i]));
	if (candidates.count == 1)
		search->layout->irq_stack = search->hot + candidates.offsets[0];
}

/* Searches the WORDS of a CPU's pcpu_hot. */
static bool find_current_among(struct search *search, const uint64_t *words)
{
	struct candidates candidates = { 0 };
	int top = -1;

	for (unsigned int i = 0; i < HOT_WORDS; i++) {
		int found = top_of(search, words, i);

		if (found < 0)
			continue;
		top = found;
		add_candidate(&candidates, i * (uint32_t)sizeof(words[i]));
	}
	if (candidates.count != 1)
		return false;
	search->layout->current = search->hot + candidates.offsets[0];
	find_irq_stack(search, words, (unsigned int)top);
	return true;
}

/*
 * A context switch writes both words one after the other, so they may disagree in one poll; and a
 * CPU's first task is not on that stack before the first switch.
 */
static int find_current(struct search *search)
{
	uint64_t words[HOT_WORDS];

	list_cpus(search);
	for (unsigned int poll = 0; search->hot && search->cpu_count && poll < RUNNING_POLLS;
	     poll++)
		if (kernel_memory_read(&search->memory,
				       search->cpus[poll % search->cpu_count] + search->hot, words,
				       sizeof(words)) &&
		    find_current_among(search, words))
			return 0;
	return search->layout->current
		       ? 0
		       : error_set(-EAGAIN, "no CPU was found on the stack of its task");
}

/* Finds the one of two members of the task on CPU that is 0 while the other is not. */
static bool is_without(struct search *search, uint64_t cpu, const struct candidates *candidates,
		       uint32_t *without)
{
	uint64_t current = cpu + search->layout->current, before, one, other, after;

	if (!kernel_memory_read_u64(&search->memory, current, &before) ||
	    !kernel_memory_read_u64(&search->memory, before + candidates->offsets[0], &one) ||
	    !kernel_memory_read_u64(&search->memory, before + candidates->offsets[1], &other) ||
	    !kernel_memory_read_u64(&search->memory, current, &after) || before != after ||
	    !one == !other)
		return false;
	*without = candidates->offsets[one ? 1 : 0];
	return true;
}

/*
 * Kernel threads and exiting tasks have no memory, and run in the previous task's: in a running
 * task mm may be 0, but active_mm never is (Documentation/mm/active_mm.rst).
 */
static int distinguish(struct search *search, const struct candidates *candidates)
{
	for (unsigned int poll = 0; search->cpu_count && poll < RUNNING_POLLS; poll++)
		if (is_without(search, search->cpus[poll % search->cpu_count], candidates,
			       &search->layout->mm))
			return 0;
	return error_set(-EAGAIN, "no CPU was found that runs a task without memory");
}

static int find_memory(struct search *search)
{
	struct candidates candidates = { 0 };
	int error;

	for (uint32_t at = 0; at + 8 <= search->size; at += 8)
		if (is_memory(search, at))
			add_candidate(&candidates, at);
	error = candidates.count == 2
			? distinguish(search, &candidates)
			: check_single(&candidates, "the pointer to memory", &search->layout->mm);
	if (!error && word_at(&search->first, search->layout->mm))
		error = error_set(-ENOENT, "its first task has memory");
	return error;
}

static int find(struct search *search)
{
	struct guest_task_layout *layout = search->layout;
	int error = read_first(search);

	if (!error)
		error = find_comm(search);
	if (!error)
		error = find_list(search);
	if (!error)
		error = find_threads(search);
	if (!error)
		error = find_number(search, false, &layout->pid);
	if (!error)
		error = find_number(search, true, &layout->tgid);
	if (!error)
		error = find_stack(search);
	if (!error)
		error = find_current(search);
	if (!error)
		error = find_page_table(search);
	return error ? error : find_memory(search);
}

/* HOT: the per-CPU structure with `current` (6.2 to 6.14), or 0. */
static int find_by_symbols(struct guest_task_layout *layout, const struct guest_kernel *kernel,
			   uint64_t *hot)
{
	struct symbol symbol = { 0 };
	bool found;

	*layout = (struct guest_task_layout){ 0 };
	if (guest_paging_is_32bit(&kernel->paging))
		return error_set(-ENOENT, "those of 32-bit kernels are not searched for");
	found = guest_task_layout_by_symbols(layout, kernel->symbols, kernel->per_cpu) &&
		(layout->current || symbols_find_name(kernel->per_cpu, "pcpu_hot", &symbol));
	*hot = symbol.start;
	if (found)
		return 0;
	return error_set(-ENOENT, "it has no symbol for the task that a CPU runs");
}

int guest_task_layout_check(const struct guest_kernel *kernel)
{
	struct guest_task_layout layout;
	uint64_t hot;

	return find_by_symbols(&layout, kernel, &hot);
}

int guest_task_layout_find(struct guest_task_layout *layout, const struct guest_kernel *kernel,
			   const struct guest_view *view, const struct reported_tasks *reported)
{
	struct search *search = calloc(1, sizeof(*search));
	int error;

	*layout = (struct guest_task_layout){ 0 };
	if (!search)
		return error_set(-ENOMEM, "no memory to search for its tasks");
	search->memory = (struct kernel_memory){ .view = view, .paging = &kernel->paging };
	search->kernel = kernel;
	search->reported = reported;
	search->layout = layout;
	search->links = LINKS_MAX;
	error = find_by_symbols(layout, kernel, &search->hot);
	if (!error)
		error = find(search);
	free(search);
	layout->known = !error;
	return error;
}
