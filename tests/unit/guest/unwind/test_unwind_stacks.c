/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of a CPU and of new tasks: to which stack they lead, and where a chain ends. */
#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/unwind_fixture.h"
#include "vmm/attach/sample_views.h"

/*
 * A CPU's stacks as in Linux (arch/x86/include/asm/cpu_entry_area.h): the entry stack and those of
 * the IST in the CPU's entry area, each after an unmapped page.
 */
#define ENTRY_AREA      0xfffffe0000001000ull
#define ENTRY_STACK_END (ENTRY_AREA + 0x2000)
#define DB_STACK        (ENTRY_AREA + 0x8000)
#define NMI_STACK       (ENTRY_AREA + 0xb000)
#define IST_SIZE        0x2000ull
/* Where their memory is. */
#define ENTRY_STACK_GPA 0x40000ull
#define DB_STACK_GPA    0x41000ull
#define NMI_STACK_GPA   0x43000ull

static void make_entry_area(struct fixture *fixture)
{
	uint64_t cr3;

	make(fixture);
	cr3 = fixture->guest.registers.paging.cr3;
	flat_guest_map(&fixture->guest, cr3, ENTRY_STACK_END - 4096, ENTRY_STACK_GPA, 4096, 0);
	for (uint64_t at = 0; at < IST_SIZE; at += 4096) {
		flat_guest_map(&fixture->guest, cr3, DB_STACK + at, DB_STACK_GPA + at, 4096, 0);
		flat_guest_map(&fixture->guest, cr3, NMI_STACK + at, NMI_STACK_GPA + at, 4096, 0);
	}
}

/* Writes what an exception pushes at the end of a stack: its registers and, below them, a call by
 * its entry (slot ENTRY). The handler's stack pointer is 8 below. GPA is that of the stack's end.
 */
static void push_exception(struct fixture *fixture, uint64_t gpa, unsigned int entry, uint64_t ip,
			   uint64_t cs, uint64_t sp)
{
	struct flat_guest *guest = &fixture->guest;

	flat_guest_write_u64(guest, gpa - 8, cs == 0x33 ? 0x2b : 0x18); /* SS */
	flat_guest_write_u64(guest, gpa - 16, sp);
	flat_guest_write_u64(guest, gpa - 32, cs);
	flat_guest_write_u64(guest, gpa - 40, ip);
	flat_guest_write_u64(guest, gpa - REGISTERS_SIZE + 4 * 8, 0); /* RBP */
	flat_guest_write_u64(guest, gpa - REGISTERS_SIZE - 8, code(entry));
	set_slot(fixture, entry, 0, 0, REGS_SP);
}

/* An NMI in the handler of #DB, in a system call: three stacks, and then user space. */
TEST(unwind, orc_across_the_exception_stacks_of_a_CPU)
{
	FIXTURE(struct fixture, fixture, make_entry_area, destroy);
	push_exception(&fixture, NMI_STACK_GPA + IST_SIZE, 2, code(3) - 4, 0x10,
		       DB_STACK + IST_SIZE - REGISTERS_SIZE - 8);
	push_exception(&fixture, DB_STACK_GPA + IST_SIZE, 4, code(5) - 4, 0x10,
		       STACK + 0x4000 - REGISTERS_SIZE - 8);
	push_exception(&fixture, STACK_GPA + 0x4000, 6, 0x401000, 0x33, USER_STACK);
	fixture.guest.registers.rsp = NMI_STACK + IST_SIZE - REGISTERS_SIZE - 8;
	unwind(&fixture);
	REQUIRE_EQUAL(fixture.chain.kernel_depth, 6);
	for (unsigned int i = 0; i < 6; i++)
		CHECK_EQUAL(fixture.addresses[i], i == 2 || i == 4 ? code(i + 1) - 4 : code(i + 1));
	CHECK(fixture.chain.user_depth >= 1);
	CHECK_EQUAL(fixture.addresses[6], 0x401000);
	CHECK(!(fixture.chain.flags & SAMPLE_KERNEL_TRUNCATED));
}

/* Until the entry of an exception leaves the entry stack, it has only what the CPU pushed. */
TEST(unwind, orc_of_the_entry_stack_of_a_CPU)
{
	FIXTURE(struct fixture, fixture, make_entry_area, destroy);
	push_exception(&fixture, ENTRY_STACK_GPA + 4096, 20, 0x401000, 0x33, USER_STACK);
	set_slot(&fixture, 1, 0, 0, PARTIAL_SP);
	fixture.guest.registers.rsp = ENTRY_STACK_END - 40;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK(fixture.chain.user_depth >= 1);
	CHECK_EQUAL(fixture.addresses[1], 0x401000);
	CHECK(!(fixture.chain.flags & SAMPLE_KERNEL_TRUNCATED));
}

/* The page below each is there for this. */
TEST(unwind, an_exception_stack_that_ran_over_ends_the_chain)
{
	FIXTURE(struct fixture, fixture, make_entry_area, destroy);
	fixture.guest.registers.rsp = NMI_STACK - 8;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

/*
 * attach unwinds a copy of the stack in use later: the frame that an exception interrupted is on
 * it, its callers are on another stack, which keeps changing.
 */
TEST(unwind, copied_exception_stack_ends_with_the_interrupted_frame)
{
	struct guest_kernel kernel;
	struct attach_guest_state stack;
	struct stack_view view;

	FIXTURE(struct fixture, fixture, make_entry_area, destroy);
	push_exception(&fixture, DB_STACK_GPA + IST_SIZE, 2, code(3) - 4, 0x10, STACK + 0x100);
	push(&fixture, 0x100, code(4)); /* is there, but may be of later */
	fixture.guest.registers.rsp = DB_STACK + IST_SIZE - REGISTERS_SIZE - 8;
	kernel = (struct guest_kernel){ .paging = fixture.guest.registers.paging,
					.text_start = TEXT,
					.text_end = TEXT + 4096 };
	stack = (struct attach_guest_state){
		.registers = fixture.guest.registers,
		.copied = true,
		.stacks[ATTACH_STACK_IN_USE] = {
			.gva = fixture.guest.registers.rsp,
			.size = REGISTERS_SIZE + 8,
			.bytes = fixture.guest.memory + DB_STACK_GPA + IST_SIZE -
				 REGISTERS_SIZE - 8,
		},
	};
	stack_view_init(&view, &fixture.guest.view, &kernel, &stack);
	guest_unwind(&fixture.unwinder, &view.view, &stack.registers, NULL, &fixture.chain);
	REQUIRE_EQUAL(fixture.chain.kernel_depth, 3);
	for (unsigned int i = 0; i < 3; i++)
		CHECK_EQUAL(fixture.addresses[i], code(i + 1) - (i == 2 ? 4 : 0));
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

/* The first instructions of a system call, on the program's stack, and its last ones are marked as
 * the end of a chain. */
TEST(unwind, entry_code_on_another_stack_is_not_the_end)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 1, 0, 0, END);
	fixture.guest.registers.rsp = USER_STACK;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

/* A new task, in a function called by its first code. CS is the program's, or 0. PADDING is that of
 * kernels with FRED. */
static void begin_task(struct fixture *fixture, uint64_t padding, uint64_t cs)
{
	uint64_t registers = 0x4000 - padding - REGISTERS_SIZE;

	make(fixture);
	set_slot(fixture, 2, 0, 0, END);
	push(fixture, registers - 8, code(2));
	push_registers(fixture, registers, 0x401000, cs, USER_STACK, 0);
	fixture->guest.registers.rsp = STACK + registers - 8;
	unwind(fixture);
	CHECK_EQUAL(fixture->chain.kernel_depth, 2);
	CHECK(!(fixture->chain.flags & SAMPLE_KERNEL_TRUNCATED));
	flat_guest_destroy(&fixture->guest);
}

TEST(unwind, a_task_that_was_forked_leads_to_its_program)
{
	struct fixture fixture;

	for (uint64_t padding = 0; padding <= 16; padding += 16) {
		begin_task(&fixture, padding, 0x33);
		REQUIRE(fixture.chain.user_depth >= 1);
		CHECK_EQUAL(fixture.addresses[2], 0x401000);
	}
}

TEST(unwind, a_kernel_thread_leads_to_no_program)
{
	struct fixture fixture;

	begin_task(&fixture, 0, 0);
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, 0);
}
