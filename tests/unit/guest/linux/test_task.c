/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/task.h"

static void check_is(struct task_guest *fixture, uint32_t pid, uint32_t tid, const char *comm)
{
	CHECK(task_guest_lookup(fixture));
	CHECK_EQUAL(fixture->task.pid, pid);
	CHECK_EQUAL(fixture->task.tid, tid);
	CHECK_STRING(fixture->task.comm, comm);
}

static void check_unknown(struct task_guest *fixture)
{
	CHECK(!task_guest_lookup(fixture));
	CHECK_EQUAL(fixture->task.pid, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(fixture->task.tid, SAMPLE_TASK_UNKNOWN);
	CHECK_STRING(fixture->task.comm, "");
}

static void enter_kernel(struct task_guest *fixture, uint64_t stack)
{
	fixture->registers->cpl = 0;
	fixture->registers->rsp = DIRECT + stack;
}

TEST(task, is_found_in_user_code_on_each_cpu)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	check_is(&fixture, 700, 702, "worker");
	CHECK(!fixture.task.foreign);
	fixture.registers->gdt_base = ENTRY_AREA + 0x1000;
	fixture.registers->paging.cr3 = TABLES(2);
	check_is(&fixture, 800, 800, "a-name-too-long");
}

/* Neither the PCID nor KPTI's bit for the user half makes another address space. */
TEST(task, is_found_under_kpti)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	fixture.registers->paging.cr3 = 1ull << 63 | TABLES(1) | 0x1000 | 0x806;
	check_is(&fixture, 700, 702, "worker");
	fixture.registers->paging.cr3 = TABLES(2) | 0x1000;
	check_unknown(&fixture);
}

TEST(task, user_code_needs_the_page_tables_of_its_task)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	fixture.registers->paging.cr3 = TABLES(2);
	check_unknown(&fixture);
}

TEST(task, of_the_kernel_is_found_without_memory_of_its_own)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_put(&fixture, TASK(1) + task_guest_layout.mm, 0);
	check_unknown(&fixture); /* no user code without memory */
	enter_kernel(&fixture, TASK_STACK(1) + 0x3f00);
	fixture.registers->paging.cr3 = TABLES(2);
	check_is(&fixture, 700, 702, "worker");
	CHECK(!fixture.task.foreign);
}

TEST(task, idle_task_has_pid_0)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_put_task(&fixture, 1, 0, 0, "swapper/0");
	task_guest_put(&fixture, TASK(1) + task_guest_layout.mm, 0);
	enter_kernel(&fixture, TASK_STACK(1) + 0x3f00);
	check_is(&fixture, 0, 0, "swapper/0");
}

/* In the order of a switch from task 1 to task 2: runqueue, page tables, stack, current. */
TEST(task, in_a_context_switch_is_that_of_the_stack)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	enter_kernel(&fixture, TASK_STACK(1) + 0x3f00);
	check_is(&fixture, 700, 702, "worker");
	CHECK(!fixture.task.foreign);
	task_guest_put(&fixture, AREA(0) + SCHEDULED, DIRECT + TASK(2));
	check_is(&fixture, 700, 702, "worker");
	fixture.registers->paging.cr3 = TABLES(2);
	check_is(&fixture, 700, 702, "worker");
	CHECK(fixture.task.foreign);
	fixture.registers->rsp = DIRECT + TASK_STACK(2) + 0x3f00;
	check_is(&fixture, 800, 800, "a-name-too-long");
	CHECK(!fixture.task.foreign);
	task_guest_put(&fixture, AREA(0) + CURRENT, DIRECT + TASK(2));
	check_is(&fixture, 800, 800, "a-name-too-long");
	CHECK(!fixture.task.foreign);
}

TEST(task, is_unknown_on_an_unknown_stack)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	enter_kernel(&fixture, TASK_STACK(2) + 0x3f00);
	check_unknown(&fixture);
}

TEST(task, is_found_on_interrupt_and_exception_stacks)
{
	static const uint64_t stacks[] = {
		DIRECT + IRQ_STACK + 0x1000, ENTRY_AREA + 0x2f00,
		0x7ffffffde000, /* after SYSCALL, RSP still has the user's value for some
				   instructions */
	};

	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	enter_kernel(&fixture, 0);
	for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
		fixture.registers->rsp = stacks[i];
		check_is(&fixture, 700, 702, "worker");
	}
}

/* The GDT in use is not that of its CPU number, or invalid. The stack gives no hint. */
TEST(task, of_another_cpu_is_refused)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	enter_kernel(&fixture, IRQ_STACK + 0x1000);
	check_is(&fixture, 700, 702, "worker");
	task_guest_put(&fixture, AREA(0) + CPU_SEGMENT, 0x0040f50000000001);
	check_unknown(&fixture);
	task_guest_put(&fixture, AREA(0) + CPU_SEGMENT, 0x00409b0000000000);
	check_unknown(&fixture);
	fixture.registers->gdt_base = ENTRY_AREA + 0x5000;
	check_unknown(&fixture);
}

TEST(task, unreadable_one_is_unknown)
{
	static const uint64_t places[] = { OFFSETS, AREA(0) + CURRENT, TASK(1) + 0x8e0,
					   MM(1) + 0x78 };
	static const uint64_t values[] = { 8, 0x1000, DIRECT + TASK_GUEST_SIZE, UINT64_MAX };

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++) {
			struct task_guest fixture;

			task_guest_make(&fixture);
			task_guest_put(&fixture, places[i], values[j]);
			check_unknown(&fixture);
			task_guest_free(&fixture);
		}
}

TEST(task, with_an_invalid_pid_is_unknown)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_put_task(&fixture, 1, 4u << 20, 702, "worker");
	check_unknown(&fixture);
	task_guest_put_task(&fixture, 1, 700, UINT32_MAX, "worker");
	check_unknown(&fixture);
	task_guest_put_task(&fixture, 1, 0, 702, "worker");
	check_unknown(&fixture);
}

TEST(task, of_a_kernel_without_smp_is_found)
{
	struct guest_task_layout one = task_guest_layout;

	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	one.offsets = 0;
	one.current += DIRECT + AREA(0);
	one.gdt_page += DIRECT + AREA(0);
	CHECK(guest_task_current(&one, &fixture.guest.view, &fixture.kernel, fixture.registers,
				 &fixture.task));
	CHECK_EQUAL(fixture.task.tid, 702);
	one.known = false;
	CHECK(!guest_task_current(&one, &fixture.guest.view, &fixture.kernel, fixture.registers,
				  &fixture.task));
}

static bool offset_by_apic(const struct task_guest *fixture, uint32_t apic_id, uint64_t *offset)
{
	return guest_task_apic_offset(&task_guest_layout, &fixture->guest.view, &fixture->kernel,
				      apic_id, offset);
}

TEST(task, cpu_is_found_by_apic_id)
{
	uint64_t offset;

	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	CHECK(offset_by_apic(&fixture, 0, &offset));
	CHECK_EQUAL(offset, DIRECT + AREA(0));
	CHECK(offset_by_apic(&fixture, 2, &offset));
	CHECK_EQUAL(offset, DIRECT + AREA(1));
	CHECK(!offset_by_apic(&fixture, 1, &offset));
	CHECK(!offset_by_apic(&fixture, 0xffff, &offset));
	CHECK(!offset_by_apic(&fixture, 0x10000, &offset));
}

TEST(task, cpu_of_a_kernel_without_smp)
{
	struct guest_task_layout one = task_guest_layout;
	uint64_t offset;

	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	one.offsets = 0;
	CHECK(guest_task_apic_offset(&one, &fixture.guest.view, &fixture.kernel, 0, &offset));
	CHECK_EQUAL(offset, 0);
	CHECK(!guest_task_apic_offset(&one, &fixture.guest.view, &fixture.kernel, 1, &offset));
}

static bool identify(struct task_guest *fixture, const struct guest_tasks_snapshot *seen)
{
	return guest_task_identify(&task_guest_layout, &fixture->guest.view, &fixture->kernel,
				   fixture->registers, DIRECT + AREA(0), seen, &fixture->task);
}

/* The guest has run on meanwhile. */
TEST(task, snapshot_is_identified_later)
{
	struct guest_tasks_snapshot seen;

	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_enter_cgroup(&fixture, 1, 2);
	CHECK(guest_tasks_read(&task_guest_layout, &fixture.guest.view, &fixture.kernel,
			       fixture.registers, DIRECT + AREA(0), &seen));
	task_guest_put(&fixture, AREA(0) + CURRENT, DIRECT + TASK(2));
	task_guest_put_task(&fixture, 1, 900, 900, "another");
	task_guest_enter_cgroup(&fixture, 1, 1);
	CHECK(identify(&fixture, &seen));
	CHECK_EQUAL(fixture.task.set, DIRECT + CSS_SET(2));
	CHECK_EQUAL(fixture.task.pid, 700);
	CHECK_EQUAL(fixture.task.tid, 702);
	CHECK_STRING(fixture.task.comm, "worker");
	CHECK_EQUAL(fixture.task.mm, DIRECT + MM(1));
	fixture.registers->paging.cr3 = TABLES(2);
	CHECK(!identify(&fixture, &seen));
	CHECK_EQUAL(fixture.task.pid, SAMPLE_TASK_UNKNOWN);
}

/* The symbols of one kernel version: per-CPU if their address is low. */
struct kernel_of_age {
	struct symbol symbols[8];
	struct btf_image_member hot[3]; /* of struct pcpu_hot */
	uint64_t current, irq_stack, scheduled, apic_id;
};

#define IMAGE 0xffffffff82000000ull

static const struct kernel_of_age ages[] = {
	{ { { .name = "current_task", .start = 0x1fbc0 },
	    { .name = "gdt_page", .start = 0xb000 },
	    { .name = "hardirq_stack_ptr", .start = 0x1fbd8 },
	    { .name = "__start_init_task", .start = IMAGE + 0x10000 },
	    { .name = "__end_init_task", .start = IMAGE + 0x14000 } },
	  { { 0 } },
	  0x1fbc0,
	  0x1fbd8,
	  0,
	  0 },
	{ { { .name = "pcpu_hot", .start = 0x34ac0 },
	    { .name = "runqueues", .start = 0x35000 },
	    { .name = "gdt_page", .start = 0xb000 },
	    { .name = "__start_init_task", .start = IMAGE + 0x10000 },
	    { .name = "__end_init_task", .start = IMAGE + 0x14000 } },
	  { { "current_task", 0 }, { "hardirq_stack_ptr", 24 }, { 0 } },
	  0x34ac0,
	  0x34ac0 + 24,
	  0x35000 + 0x908,
	  0 },
	{ { { .name = "current_task", .start = IMAGE + 0x90000 },
	    { .name = "gdt_page", .start = IMAGE + 0x91000 },
	    { .name = "runqueues", .start = IMAGE + 0x95000 },
	    { .name = "hardirq_stack_ptr", .start = IMAGE + 0x90008 },
	    { .name = "x86_cpu_to_apicid", .start = IMAGE + 0x92000 },
	    { .name = "__start_init_stack", .start = IMAGE + 0x10000 },
	    { .name = "__end_init_stack", .start = IMAGE + 0x14000 } },
	  { { 0 } },
	  IMAGE + 0x90000,
	  IMAGE + 0x90008,
	  IMAGE + 0x95000 + 0x908,
	  IMAGE + 0x92000 },
};

static void make_btf(struct btf_image *image, const struct kernel_of_age *age)
{
	static const struct btf_image_member task[] = { { "stack", 0x18 }, { "mm", 0x8e0 },
							{ "pid", 0x990 },  { "tgid", 0x994 },
							{ "comm", 0xbc0 }, { 0 } };
	static const struct btf_image_member mm[] = { { "pgd", 0x78 }, { 0 } };
	static const struct btf_image_member rq[] = { { "curr", 0x908 }, { 0 } };

	btf_image_start(image);
	btf_image_add_struct(image, "task_struct", 0x2000, task);
	btf_image_add_struct(image, "mm_struct", 0x400, mm);
	btf_image_add_struct(image, "rq", 0x1000, rq);
	if (age->hot[0].name)
		btf_image_add_struct(image, "pcpu_hot", 64, age->hot);
}

static struct symbols *make_symbols(const struct kernel_of_age *age, bool per_cpu)
{
	struct symbols *symbols = symbols_new();

	if (!symbols)
		abort();
	for (const struct symbol *symbol = age->symbols; symbol->name; symbol++)
		if ((symbol->start < IMAGE) == per_cpu)
			CHECK_EQUAL(symbols_add(symbols, symbol->start, 8, 'd', symbol->name, NULL),
				    0);
	if (!per_cpu)
		CHECK_EQUAL(symbols_add(symbols, IMAGE, 8, 'd', "__per_cpu_offset", NULL), 0);
	symbols_finish(symbols);
	return symbols;
}

static int read_layout(struct guest_task_layout *read, const struct kernel_of_age *age,
		       struct span data)
{
	struct symbols *symbols = make_symbols(age, false), *per_cpu = make_symbols(age, true);
	struct btf btf;
	int error = btf_open(&btf, data);

	CHECK_EQUAL(error, 0);
	if (!error)
		error = guest_task_layout_read(read, symbols, per_cpu, &btf);
	btf_close(&btf);
	symbols_free(symbols);
	symbols_free(per_cpu);
	return error;
}

TEST(task, execve_is_detected_by_the_call_chain)
{
	const struct guest_task_layout layout = { .execve_start = 0xffffffff81001000,
						  .execve_end = 0xffffffff81001400 };
	const struct guest_task_layout unknown = { .known = true };
	const uint64_t inside[] = { 0xffffffff81234567, 0xffffffff810013ff, 0xffffffff81000010 };
	const uint64_t outside[] = { 0xffffffff81234567, 0xffffffff81001400, 0xffffffff81000fff };

	CHECK(guest_task_in_execve(&layout, inside, 3));
	CHECK(!guest_task_in_execve(&layout, inside, 1));
	CHECK(!guest_task_in_execve(&layout, outside, 3));
	CHECK(!guest_task_in_execve(&unknown, inside, 3));
}

TEST(task, layouts_of_all_kernel_versions)
{
	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
		struct guest_task_layout read;
		struct btf_image image;

		make_btf(&image, &ages[i]);
		REQUIRE_EQUAL(read_layout(&read, &ages[i], btf_image_finish(&image)), 0);
		CHECK(read.known);
		CHECK_EQUAL(read.current, ages[i].current);
		CHECK_EQUAL(read.irq_stack, ages[i].irq_stack);
		CHECK_EQUAL(read.scheduled, ages[i].scheduled);
		CHECK_EQUAL(read.offsets, IMAGE);
		CHECK_EQUAL(read.cpus, 1);
		CHECK_EQUAL(read.apic_id, ages[i].apic_id);
		CHECK_EQUAL(read.stack_size, 0x4000);
		CHECK_EQUAL(read.pid, 0x990);
		CHECK_EQUAL(read.tgid, 0x994);
		CHECK_EQUAL(read.comm, 0xbc0);
		CHECK_EQUAL(read.mm, 0x8e0);
		CHECK_EQUAL(read.stack, 0x18);
		CHECK_EQUAL(read.page_table, 0x78);
	}
}

TEST(task, layout_with_a_missing_part_is_unknown)
{
	struct guest_task_layout read;
	struct btf_image image;

	for (size_t i = 0; i < 5; i++) {
		struct kernel_of_age age = ages[0];

		if (i == 2)
			continue; /* without its interrupt stack, tasks are found elsewhere */
		age.symbols[i].name = "another";
		make_btf(&image, &age);
		CHECK_EQUAL(read_layout(&read, &age, btf_image_finish(&image)), -ENOENT);
		CHECK(!read.known);
	}
	btf_image_start(&image);
	CHECK_EQUAL(read_layout(&read, &ages[0], btf_image_finish(&image)), -ENOENT);
	btf_image_add_struct(&image, "task_struct", 0x100,
			     (struct btf_image_member[]){ { "comm", 0xf8 }, { 0 } });
	CHECK_EQUAL(read_layout(&read, &ages[0], btf_image_finish(&image)), -ENOENT);
}

/* Its threads have the same parent as its first thread. */
TEST(task, is_reported_with_its_process_and_cgroup)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_put_task(&fixture, 3, 700, 700, "first");
	task_guest_put_process(&fixture, 1, 3, 123456789, 2);
	task_guest_put_cgroup(&fixture, 0, 0, 1, "");
	task_guest_put_cgroup(&fixture, 1, 0, 55, "user.slice");
	task_guest_enter_cgroup(&fixture, 1, 1);
	check_is(&fixture, 700, 702, "worker");
	CHECK_EQUAL(fixture.task.started, 123456789);
	CHECK_EQUAL(fixture.task.parent, 800);
	CHECK_STRING(fixture.task.process_comm, "first");
	CHECK_EQUAL(fixture.task.cgroup.id, 55);
	CHECK_EQUAL(fixture.task.cgroup.node, DIRECT + NODE(1));
}

TEST(task, is_known_without_its_process_and_cgroup)
{
	FIXTURE(struct task_guest, fixture, task_guest_make, task_guest_free);
	task_guest_put_process(&fixture, 1, 1, 123456789, 2);
	task_guest_put(&fixture, TASK(1) + task_guest_layout.parent, 0x123456);
	check_is(&fixture, 700, 702, "worker");
	CHECK_EQUAL(fixture.task.started, 0);
	CHECK_EQUAL(fixture.task.cgroup.id, 0);
}
