/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Search for the layout of tasks by known ones: a synthetic kernel, with similar data next to
 * them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/guest/linux/task_find.h"

#define SIZE         0x800ull
#define FIRST        0x600000ull /* GPAs */
#define FIRST_MM     0x602000ull
#define FIRST_PGD    0x603000ull
#define STACK        0x604000ull
#define CPU_TABLE    0x60c000ull
#define MARKED       0x500000ull /* GVA in each process */
#define MARK(n)      (0x610000ull + (n)*0x1000ull)
#define KNOWN(n)     (0x620000ull + (n)*0x800ull)
#define MEMORY(n)    (0x640000ull + (n)*0x400ull)
#define CGROUP_TASKS 0x650000ull
#define TASKS        6u
#define LONG         0x8000u /* tasks on a list; twice that is too many */

/* Byte offsets; mm and active_mm differ only in a running kernel thread. */
static const struct guest_task_layout truth = { .pid = 0x510,
						.tgid = 0x514,
						.comm = 0x5a8,
						.mm = 0x408,
						.stack = 0x18,
						.page_table = 0x50,
						.list = 0x300 };
enum { ACTIVE_MM = 0x400, THREADS = 0x340, CGROUP_LIST = 0x380, ANOTHER = 0x700 };

struct known {
	struct task_guest guest;
	struct guest_kernel kernel;
	struct reported_tasks reported;
	struct guest_task_layout found;
};

static void put_half(struct known *known, uint64_t gpa, uint32_t value)
{
	memcpy(known->guest.guest.memory + gpa, &value, sizeof(value));
}

/* A list through OFFSET of the COUNT tasks at GPAS, the first one being its head. */
static void put_list(struct known *known, uint64_t offset, const uint64_t *gpas, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		task_guest_put(&known->guest, gpas[i] + offset,
			       DIRECT + gpas[(i + 1) % count] + offset);
		task_guest_put(&known->guest, gpas[(i + 1) % count] + offset + 8,
			       DIRECT + gpas[i] + offset);
	}
}

static void put_task(struct known *known, uint64_t gpa, const struct agent_task *task, uint64_t mm,
		     uint64_t stack)
{
	put_half(known, gpa + truth.pid, task->pid);
	put_half(known, gpa + truth.tgid, task->tgid);
	memcpy(known->guest.guest.memory + gpa + truth.comm, task->comm, sizeof(task->comm));
	task_guest_put(&known->guest, gpa + truth.stack, DIRECT + stack);
	task_guest_put(&known->guest, gpa + truth.mm, mm ? DIRECT + mm : 0);
	task_guest_put(&known->guest, gpa + ACTIVE_MM, mm ? DIRECT + mm : 0);
}

static void put_memory(struct known *known, unsigned int n)
{
	struct flat_guest *flat = &known->guest.guest;
	uint64_t table = flat_guest_table(flat);

	memcpy(flat->memory + MARK(n) + 0x20, known->reported.tasks[n].mark, AGENT_TASK_MARK);
	flat_guest_map(flat, table, MARKED, MARK(n), 4096, 0);
	task_guest_put(&known->guest, MEMORY(n) + truth.page_table, DIRECT + table);
}

/* Tasks 1 and 2 are threads of task 0. */
static bool is_thread(unsigned int n)
{
	return n == 1 || n == 2;
}

static void put_tasks(struct known *known)
{
	const uint64_t all[] = { FIRST,    CGROUP_TASKS, KNOWN(0), KNOWN(1),
				 KNOWN(2), KNOWN(3),     KNOWN(4), KNOWN(5) };
	const uint64_t processes[] = { FIRST, KNOWN(3), KNOWN(0), KNOWN(4), KNOWN(5) };
	const uint64_t threads[] = { KNOWN(0), KNOWN(1), KNOWN(2) };

	for (unsigned int n = 0; n < TASKS; n++) {
		struct agent_task *task = &known->reported.tasks[n];

		*task = (struct agent_task){ .pid = 300 + n,
					     .tgid = is_thread(n) ? 300 : 300 + n,
					     .marked = MARKED + 0x20 };
		snprintf(task->comm, sizeof(task->comm), "known-%u", n);
		memset(task->mark, is_thread(n) ? 1 : (int)n + 1, sizeof(task->mark));
		put_memory(known, n);
		put_task(known, KNOWN(n), task, MEMORY(is_thread(n) ? 0 : n),
			 0x680000 + n * 0x4000);
	}
	known->reported.count = TASKS;
	put_list(known, truth.list, processes, 5);
	put_list(known, CGROUP_LIST, all, 8);
	put_list(known, THREADS, threads, 3);
}

static void add_symbols(struct known *known)
{
	const struct {
		const char *name;
		uint64_t address, size;
	} symbols[] = { { "init_task", FIRST, SIZE },
			{ "init_mm", FIRST_MM, 0x400 },
			{ "init_top_pgt", FIRST_PGD, 0x1000 },
			{ "__start_init_task", STACK, 0x4000 },
			{ "__end_init_task", STACK + 0x4000, 8 },
			{ "__per_cpu_offset", OFFSETS, 32 } };

	known->kernel = (struct guest_kernel){ .paging = known->guest.kernel,
					       .symbols = symbols_new(),
					       .per_cpu = symbols_new() };
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		symbols_add(known->kernel.symbols, DIRECT + symbols[i].address, symbols[i].size,
			    'D', symbols[i].name, NULL);
	symbols_add(known->kernel.per_cpu, CURRENT, 8, 'D', "current_task", NULL);
	symbols_add(known->kernel.per_cpu, GDT_PAGE, 8, 'D', "gdt_page", NULL);
	symbols_finish(known->kernel.symbols);
	symbols_finish(known->kernel.per_cpu);
}

/* CPU 0 runs the first task, with the page tables of another. */
static void make(struct known *known)
{
	const struct agent_task first = { .comm = "swapper/0" };

	memset(known, 0, sizeof(*known));
	task_guest_make(&known->guest);
	put_task(known, FIRST, &first, 0, STACK);
	task_guest_put(&known->guest, FIRST + ACTIVE_MM, DIRECT + MEMORY(3));
	task_guest_put(&known->guest, FIRST_MM + truth.page_table, DIRECT + FIRST_PGD);
	put_tasks(known);
	for (unsigned int cpu = 0; cpu < 2; cpu++)
		task_guest_put(&known->guest, AREA(cpu) + CURRENT,
			       DIRECT + (cpu ? KNOWN(3) : FIRST));
	add_symbols(known);
}

static int find(struct known *known)
{
	return guest_task_layout_find(&known->found, &known->kernel, &known->guest.guest.view,
				      &known->reported);
}

/* Checks that they are found, or that ERROR is returned, and destroys the fixture. */
static void check(struct known *known, int error)
{
	CHECK_EQUAL(find(known), error);
	CHECK_EQUAL(known->found.known, !error);
	if (!error) {
		CHECK_EQUAL(known->found.pid, truth.pid);
		CHECK_EQUAL(known->found.tgid, truth.tgid);
		CHECK_EQUAL(known->found.comm, truth.comm);
		CHECK_EQUAL(known->found.mm, truth.mm);
		CHECK_EQUAL(known->found.stack, truth.stack);
		CHECK_EQUAL(known->found.page_table, truth.page_table);
		CHECK_EQUAL(known->found.list, truth.list);
		CHECK_EQUAL(known->found.first, DIRECT + FIRST);
		CHECK_EQUAL(known->found.stack_size, 0x4000);
	}
	symbols_free(known->kernel.symbols);
	symbols_free(known->kernel.per_cpu);
	task_guest_free(&known->guest);
}

TEST(task_find, finds_the_layout_by_known_tasks)
{
	struct known known;

	make(&known);
	CHECK_EQUAL(guest_task_layout_check(&known.kernel), 0);
	check(&known, 0);
}

TEST(task_find, refuses_an_ambiguous_pid)
{
	struct known known;

	make(&known);
	for (unsigned int n = 0; n < TASKS; n++)
		put_half(&known, KNOWN(n) + ANOTHER, known.reported.tasks[n].pid);
	check(&known, -ENOTUNIQ);
}

TEST(task_find, refuses_pids_of_another_namespace)
{
	struct known known;

	make(&known);
	for (unsigned int n = 0; n < TASKS; n++)
		put_half(&known, KNOWN(n) + truth.pid, 700 + n);
	check(&known, -ENOENT);
}

/* A number that the first task has too has another meaning. */
TEST(task_find, refuses_a_pid_that_the_first_task_has)
{
	struct known known;

	make(&known);
	put_half(&known, FIRST + truth.tgid, 1);
	check(&known, -ENOENT);
}

TEST(task_find, distinguishes_mm_by_a_task_without_memory)
{
	struct known known;

	make(&known);
	task_guest_put(&known.guest, AREA(0) + CURRENT, DIRECT + KNOWN(4));
	check(&known, -EAGAIN);
}

TEST(task_find, refuses_memory_without_the_mark)
{
	struct known known;

	make(&known);
	known.reported.tasks[4].mark[3]++;
	check(&known, -ENOENT);
}

TEST(task_find, refuses_a_stack_that_two_tasks_have)
{
	struct known known;

	make(&known);
	task_guest_put(&known.guest, KNOWN(2) + truth.stack, DIRECT + 0x680000);
	check(&known, -ENOENT);
}

TEST(task_find, fails_without_the_reported_tasks)
{
	struct known known;

	make(&known);
	known.reported.tasks[5].comm[0] = 'K';
	check(&known, -ENOENT);
	make(&known);
	known.reported.tasks[2].comm[0] = 'K';
	check(&known, -ENOENT);
}

/* The guest is changing the list, or it is damaged. */
TEST(task_find, refuses_a_list_that_does_not_return)
{
	struct known known;

	make(&known);
	task_guest_put(&known.guest, KNOWN(5) + truth.list, DIRECT + KNOWN(5) + truth.list);
	task_guest_put(&known.guest, KNOWN(5) + truth.list + 8, DIRECT + KNOWN(5) + truth.list);
	check(&known, -ENOENT);
}

/* After the last link that is followed there may be a second candidate. */
TEST(task_find, refuses_a_list_if_the_search_is_incomplete)
{
	static uint64_t tasks[1 + 2 * LONG];
	struct known known;

	make(&known);
	tasks[0] = FIRST;
	for (size_t i = 0; i < LONG; i++) {
		tasks[1 + i] = 0x210000 + i * 16;
		tasks[1 + LONG + i] = 0x310000 + i * 16;
	}
	put_list(&known, ANOTHER, tasks, 1 + 2 * LONG);
	check(&known, -E2BIG);
	make(&known);
	put_list(&known, ANOTHER, tasks, 1 + LONG);
	check(&known, 0);
}

TEST(task_find, needs_a_symbol_for_current)
{
	struct known known;

	make(&known);
	symbols_free(known.kernel.per_cpu);
	known.kernel.per_cpu = symbols_new();
	symbols_add(known.kernel.per_cpu, GDT_PAGE, 8, 'D', "gdt_page", NULL);
	symbols_finish(known.kernel.per_cpu);
	CHECK_EQUAL(guest_task_layout_check(&known.kernel), -ENOENT);
	check(&known, -ENOENT);
}

#define HOT 0x100ull /* per-CPU address of pcpu_hot */
enum { HOT_CURRENT = 8, HOT_DEPTH = 16, HOT_TOP = 24, HOT_IRQ = 40 };

static void put_hot(struct known *known, unsigned int cpu, uint64_t task, uint64_t stack)
{
	task_guest_put(&known->guest, AREA(cpu) + HOT + HOT_CURRENT, DIRECT + task);
	task_guest_put(&known->guest, AREA(cpu) + HOT + HOT_DEPTH, 0xfffc000000000000);
	task_guest_put(&known->guest, AREA(cpu) + HOT + HOT_TOP, DIRECT + stack + 0x4000);
	task_guest_put(&known->guest, AREA(cpu) + HOT + HOT_IRQ, DIRECT + IRQ_STACK + 0x4000 - 8);
}

/* As make(), for a kernel whose variable for a CPU's current task is a member of a structure. */
static void make_hot(struct known *known)
{
	make(known);
	symbols_free(known->kernel.per_cpu);
	known->kernel.per_cpu = symbols_new();
	symbols_add(known->kernel.per_cpu, HOT, 64, 'D', "pcpu_hot", NULL);
	symbols_add(known->kernel.per_cpu, GDT_PAGE, 8, 'D', "gdt_page", NULL);
	symbols_finish(known->kernel.per_cpu);
	put_hot(known, 0, FIRST, STACK);
	put_hot(known, 1, KNOWN(3), 0x680000 + 3 * 0x4000);
	CHECK_EQUAL(guest_task_layout_check(&known->kernel), 0);
}

static void check_hot(struct known *known, uint64_t irq_stack)
{
	check(known, 0);
	CHECK_EQUAL(known->found.current, HOT + HOT_CURRENT);
	CHECK_EQUAL(known->found.irq_stack, irq_stack);
}

TEST(task_find, finds_current_in_pcpu_hot)
{
	struct known known;

	make_hot(&known);
	check_hot(&known, HOT + HOT_IRQ);
	/* With FRED; and one CPU within a switch. */
	make_hot(&known);
	task_guest_put(&known.guest, AREA(0) + HOT + HOT_TOP, DIRECT + STACK + 0x4000 - 16);
	task_guest_put(&known.guest, AREA(1) + HOT + HOT_TOP, DIRECT + STACK + 0x4000);
	check_hot(&known, HOT + HOT_IRQ);
	/* Twelve calls deep, where returns are counted (call_depth). */
	make_hot(&known);
	for (unsigned int cpu = 0; cpu < 2; cpu++)
		task_guest_put(&known.guest, AREA(cpu) + HOT + HOT_DEPTH, -8ull);
	check_hot(&known, HOT + HOT_IRQ);
	/* Two candidates for the interrupt stack: neither is used. */
	make_hot(&known);
	for (unsigned int cpu = 0; cpu < 2; cpu++)
		task_guest_put(&known.guest, AREA(cpu) + HOT + HOT_DEPTH, DIRECT + IRQ_STACK - 8);
	check_hot(&known, 0);
}

TEST(task_find, refuses_an_ambiguous_current)
{
	struct known known;

	make_hot(&known);
	for (unsigned int cpu = 0; cpu < 2; cpu++)
		task_guest_put(&known.guest, AREA(cpu) + HOT + HOT_TOP, DIRECT + IRQ_STACK);
	check(&known, -EAGAIN);
	make_hot(&known);
	for (unsigned int cpu = 0; cpu < 2; cpu++) {
		task_guest_put(&known.guest, AREA(cpu) + HOT, DIRECT + KNOWN(4));
		task_guest_put(&known.guest, AREA(cpu) + HOT + 48, DIRECT + 0x680000 + 5 * 0x4000);
	}
	check(&known, -EAGAIN);
}

/* A message of those tasks. */
struct message {
	struct agent_tasks head;
	struct agent_task tasks[AGENT_TASKS_MAX + 1];
};

static struct message message_of(uint32_t count)
{
	struct message message = { .head.count = count };

	for (unsigned int n = 0; n <= AGENT_TASKS_MAX; n++) {
		struct agent_task *task = &message.tasks[n];

		*task = (struct agent_task){ .pid = 300 + n, .tgid = is_thread(n) ? 300 : 300 + n };
		snprintf(task->comm, sizeof(task->comm), "known-%u", n);
		memset(task->mark, is_thread(n) ? 1 : (int)n + 1, sizeof(task->mark));
	}
	return message;
}

static int read_message(const struct message *message)
{
	struct reported_tasks reported;

	return reported_tasks_read(&reported, span_of(message, sizeof(*message)));
}

TEST(reported_tasks, are_enough_and_of_different_values)
{
	struct message message = message_of(TASKS);

	CHECK_EQUAL(read_message(&message), 0);
	message = message_of(4); /* two processes */
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(AGENT_TASKS_MAX + 1);
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	message.tasks[1].tgid = 299; /* of a process that is not reported */
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	strcpy(message.tasks[4].comm, "known-1");
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	memset(message.tasks[4].comm, 'x', sizeof(message.tasks[4].comm));
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	memset(message.tasks[4].mark, 1, AGENT_TASK_MARK);
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	message.tasks[4].pid = message.tasks[4].tgid = UINT32_MAX;
	CHECK_EQUAL(read_message(&message), -EINVAL);
}

TEST(reported_tasks, error_of_the_agent_is_returned)
{
	struct message message = { .head.error = -EPERM };
	struct reported_tasks reported;

	CHECK_EQUAL(read_message(&message), -EPERM);
	message.head.error = EPERM;
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message.head.error = INT32_MIN;
	CHECK_EQUAL(read_message(&message), -EINVAL);
	message = message_of(TASKS);
	CHECK_EQUAL(reported_tasks_read(&reported, span_of(&message, sizeof(message.head) + 40)),
		    -EINVAL);
}
