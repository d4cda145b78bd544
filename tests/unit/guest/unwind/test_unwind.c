/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/unwind_fixture.h"

/* The same of TARGET. */
static void put_direct_call(struct fixture *fixture, uint64_t address, uint64_t target)
{
	uint8_t *end = user_code(fixture, address);
	int32_t distance = (int32_t)(target - address);

	end[-5] = 0xe8;
	memcpy(end - 4, &distance, 4);
}

TEST(unwind, orc_from_a_call_into_the_system_call_entry_and_user_space)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 1, 24, -16, CALL_SP_BP);
	set_slot(&fixture, 2, 16, -16, CALL_BP);
	set_slot(&fixture, 3, 8, 0, REGS_SP);
	push(&fixture, 8, STACK + 0x40); /* the caller's bp */
	push(&fixture, 16, code(2));
	push(&fixture, 0x40, 0x1234);
	push(&fixture, 0x48, code(3));
	push_registers(&fixture, 0x58, 0x401000, 0x33, USER_STACK, USER_STACK + 0x20);
	push_user(&fixture, 0x20, USER_STACK + 0x40);
	push_user(&fixture, 0x28, 0x402000);
	push_user(&fixture, 0x40, 0);
	push_user(&fixture, 0x48, 0x403000);
	unwind(&fixture);
	REQUIRE_EQUAL(fixture.chain.kernel_depth, 3);
	CHECK_EQUAL(fixture.addresses[0], code(1));
	CHECK_EQUAL(fixture.addresses[1], code(2));
	CHECK_EQUAL(fixture.addresses[2], code(3));
	REQUIRE_EQUAL(fixture.chain.user_depth, 3);
	CHECK_EQUAL(fixture.addresses[3], 0x401000);
	CHECK_EQUAL(fixture.addresses[4], 0x402000);
	CHECK_EQUAL(fixture.addresses[5], 0x403000);
	CHECK_EQUAL(fixture.chain.flags, 0);
}

TEST(unwind, orc_across_an_interrupt_of_the_kernel_on_another_stack)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 1, 16, 0, CALL_SP_INDIRECT); /* the previous stack is at the top */
	set_slot(&fixture, 2, 0, 0, REGS_SP);
	set_slot(&fixture, 4, 0, 0, END);
	push(&fixture, 0, STACK + 0x1000);
	push(&fixture, 0x1008, code(2));
	push_registers(&fixture, 0x1010, code(3) - 4, 0x10, STACK + 0x2000, 77);
	push(&fixture, 0x2000, code(4));
	unwind(&fixture);
	REQUIRE_EQUAL(fixture.chain.kernel_depth, 4);
	/*
	 * An interrupted instruction may be the first of its function: it is looked up by its own
	 * address.
	 */
	CHECK_EQUAL(fixture.addresses[2], code(3) - 4);
	CHECK_EQUAL(fixture.addresses[3], code(4));
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, 0);
}

TEST(unwind, orc_of_a_return_address_after_its_function)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 2, 24, 0, CALL_SP);
	set_slot(&fixture, 3, 0, 0, NONE);
	set_slot(&fixture, 5, 0, 0, END);
	push(&fixture, 0, TEXT + 3 * STEP); /* slot 2 ended in a call that never returns */
	push(&fixture, 24, code(5));
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 3);
	CHECK_EQUAL(fixture.addresses[2], code(5));
	CHECK_EQUAL(fixture.chain.flags, 0);
}

TEST(unwind, orc_uses_registers_only_as_long_as_they_are_known)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 1, 0, 0, CALL_R10);
	set_slot(&fixture, 2, 0, 0, CALL_R10);
	fixture.guest.registers.r10 = STACK + 0x108;
	push(&fixture, 0x100, code(2));
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

TEST(unwind, an_interrupt_frame_alone_keeps_the_user_frame_pointer)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 1, 0, 0, PARTIAL_SP);
	push(&fixture, 0, 0x401000);
	push(&fixture, 8, 0x33);
	push(&fixture, 24, USER_STACK);
	fixture.guest.registers.rbp = USER_STACK + 0x10;
	push_user(&fixture, 0x18, 0x402000);
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	REQUIRE_EQUAL(fixture.chain.user_depth, 2);
	CHECK_EQUAL(fixture.addresses[2], 0x402000);
	CHECK_EQUAL(fixture.chain.flags, 0);
}

/* Code(20) is in the thunk, which was called just before code(2), the outermost function. */
static void make_thunk(struct fixture *fixture, uint16_t flags, uint64_t on_top)
{
	make(fixture);
	set_slot(fixture, 20, 8, 0, flags);
	set_slot(fixture, 2, 16, 0, END);
	fixture->guest.registers.rip = code(20);
	push(fixture, 0, on_top);
	push(fixture, 8, code(2) + 5);
}

static void check_thunk(struct fixture *fixture)
{
	uint8_t *call = fixture->guest.memory + TEXT_GPA + (code(2) - TEXT);

	unwind(fixture);
	CHECK(fixture->chain.kernel_depth == 1 || fixture->addresses[1] != code(2) + 5);
	*call = 0xe8;
	unwind(fixture);
	CHECK_EQUAL(fixture->chain.kernel_depth, 2);
	CHECK_EQUAL(fixture->addresses[1], code(2) + 5);
	CHECK_EQUAL(fixture->chain.flags, 0);
	flat_guest_destroy(&fixture->guest);
}

TEST(unwind, retpoline_thunk_is_unwound_by_its_return_address)
{
	struct fixture fixture;

	make_thunk(&fixture, NONE, code(2) + 5); /* at its start */
	check_thunk(&fixture);
	make_thunk(&fixture, END, code(20) + 2); /* after its call of itself */
	check_thunk(&fixture);
	make_thunk(&fixture, CALL_SP, TEXT + 9 * STEP); /* at its RET to a function */
	fixture.guest.memory[TEXT_GPA + (code(20) - TEXT)] = 0xc3;
	check_thunk(&fixture);
}

TEST(unwind, plain_return_is_not_a_thunk)
{
	struct fixture fixture;

	make_thunk(&fixture, CALL_SP, code(4));
	set_slot(&fixture, 4, 16, 0, END);
	memcpy(fixture.guest.memory + TEXT_GPA + (code(20) - TEXT), "\xc3", 1);
	memcpy(fixture.guest.memory + TEXT_GPA + (code(4) - TEXT) - 2, "\xff\xd0",
	       2); /* call *%rax */
	fixture.guest.memory[TEXT_GPA + (code(2) - TEXT)] = 0xe8;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.addresses[1], code(4));
	flat_guest_destroy(&fixture.guest);
}

#define GENERATED     (TEXT + 0x20000000) /* by the kernel */
#define GENERATED_GPA 0x40000ull

/* A function whose caller is in slot 2 after a call, and whose caller's caller is in slot 3. */
static void make_generated(struct fixture *fixture, uint64_t at)
{
	static const uint8_t function[] = { 0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x90, 0x90,
					    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
					    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
					    0x90, 0x90, 0x90, 0x90, 0xc9, 0xc3 };

	make(fixture);
	set_slot(fixture, 2, 16, 0, CALL_BP);
	set_slot(fixture, 3, 0, 0, END);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, GENERATED,
		       GENERATED_GPA, 4096, 0);
	memset(fixture->guest.memory + GENERATED_GPA, 0xcc, 4096);
	memcpy(fixture->guest.memory + GENERATED_GPA + 64, function, sizeof(function));
	fixture->guest.memory[TEXT_GPA + (code(2) - TEXT)] = 0xe8;
	fixture->guest.registers.rip = GENERATED + 64 + at;
	fixture->guest.registers.rbp = STACK + 0x20;
	push(fixture, 0x20, 0);
}

TEST(unwind, code_without_a_table_needs_a_caller_after_a_call)
{
	FIXTURE(struct fixture, fixture, make_generated, destroy, 8);
	set_slot(&fixture, 2, 0, 0, END);
	push(&fixture, 0x28, code(2) + 5);
	fixture.guest.memory[TEXT_GPA + (code(2) - TEXT)] = 0;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	fixture.guest.memory[TEXT_GPA + (code(2) - TEXT)] = 0xe8;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.addresses[1], code(2) + 5);
	CHECK_EQUAL(fixture.chain.flags, 0);
	/* Unreadable code may have no frame. */
	fixture.guest.registers.rip += 0x100000;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

/* The frame pointer is its caller's, and leads to the caller's caller. */
TEST(unwind, code_without_table_and_frame_leads_to_its_caller)
{
	static const struct {
		uint64_t at, address; /* in the function; offset of its return address */
	} places[] = { { 0, 0 }, { 1, 8 }, { 29, 0 } };

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct fixture fixture;

		make_generated(&fixture, places[i].at);
		push(&fixture, places[i].address, code(2) + 5);
		push(&fixture, 0x28, code(3));
		unwind(&fixture);
		REQUIRE_EQUAL(fixture.chain.kernel_depth, 3);
		CHECK_EQUAL(fixture.addresses[1], code(2) + 5);
		CHECK_EQUAL(fixture.addresses[2], code(3));
		CHECK_EQUAL(fixture.chain.flags, 0);
		flat_guest_destroy(&fixture.guest);
	}
}

/* Entries of 4.14 do not distinguish the outermost frame from one that cannot be unwound. */
static void unwind_without_end(struct fixture *fixture, uint64_t left)
{
	make(fixture);
	for (unsigned int i = 0; i < SLOTS; i++)
		set_slot(fixture, i, 8, 0, 0x005);
	set_slot(fixture, 2, 0, 0, 0x000);
	fixture->unwinder.format = orc_detect_format(&fixture->table);
	CHECK_EQUAL(fixture->unwinder.format, ORC_FORMAT_NO_END);
	fixture->guest.registers.rsp = STACK + 0x4000 - left - 8;
	push(fixture, 0x4000 - left - 8, code(2));
	unwind(fixture);
	CHECK_EQUAL(fixture->chain.kernel_depth, 2);
	CHECK_EQUAL(fixture->addresses[1], code(2));
	flat_guest_destroy(&fixture->guest);
}

TEST(unwind, end_is_detected_by_the_stack_without_an_entry)
{
	struct fixture fixture;

	unwind_without_end(&fixture, 168); /* a kernel thread */
	CHECK_EQUAL(fixture.chain.flags, 0);
	unwind_without_end(&fixture, 168 + 56); /* an idle task */
	CHECK_EQUAL(fixture.chain.flags, 0);
	unwind_without_end(&fixture, 168 + 8);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	unwind_without_end(&fixture, 0x2000 + 168);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

TEST(unwind, stacks_that_cannot_be_unwound_are_flagged)
{
	static const uint64_t stacks[] = { STACK + 4, 0, STACK + 0x4000, UINT64_MAX - 7 };

	FIXTURE(struct fixture, fixture, make, destroy);
	for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
		fixture.guest.registers.rsp = stacks[i];
		unwind(&fixture);
		CHECK_EQUAL(fixture.chain.kernel_depth, 1);
		CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	}
	fixture.guest.registers.rsp = STACK;
	push(&fixture, 0, 0x401000); /* no kernel code */
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

TEST(unwind, endless_recursion_ends_at_the_capacity)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	for (uint64_t at = 0; at < 0x400; at += 8)
		push(&fixture, at, code(1));
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 16);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	fixture.chain.capacity = 0;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 0);
}

TEST(unwind, the_kernels_stack_is_read_by_its_own_page_tables)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	set_slot(&fixture, 2, 0, 0, END);
	push(&fixture, 0, code(2));
	fixture.guest.registers.paging.cr3 =
		flat_guest_table(&fixture.guest); /* maps nothing, as KPTI's user half */
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.chain.flags, 0);
}

TEST(unwind, kernel_frame_pointers_with_marked_registers)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.guest.registers.rbp = STACK + 0x20;
	push(&fixture, 0x20, STACK + 0x40);
	push(&fixture, 0x28, code(2));
	push(&fixture, 0x40, (STACK + 0x60) | 1);
	push(&fixture, 0x48, code(3));
	push_registers(&fixture, 0x60, 0x401000, 0x33, USER_STACK, 0);
	/* In an unknown kernel. */
	fixture.chain.unknown_kernel = true;
	put_kernel_call(&fixture, code(2));
	guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL, &fixture.chain);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	fixture.chain.unknown_kernel = false;
	guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL, &fixture.chain);
	REQUIRE_EQUAL(fixture.chain.kernel_depth, 3);
	CHECK_EQUAL(fixture.addresses[2], code(3));
	REQUIRE_EQUAL(fixture.chain.user_depth, 1);
	CHECK_EQUAL(fixture.addresses[3], 0x401000);
	CHECK_EQUAL(fixture.chain.flags, 0);
}

/* struct pt_regs is PADDING bytes below the end of the stack. */
static void check_system_call(uint64_t padding)
{
	uint64_t registers = 0x4000 - padding - REGISTERS_SIZE;
	struct fixture fixture;

	make(&fixture);
	fixture.guest.registers.rsp = STACK + 0x3e00;
	fixture.guest.registers.rbp = STACK + registers - 16;
	push(&fixture, registers - 16, 0);
	push(&fixture, registers - 8, code(3));
	push_registers(&fixture, registers, 0x401000, 0x33, USER_STACK, USER_STACK + 0x10);
	push_user(&fixture, 0x18, 0x402000);
	guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL, &fixture.chain);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	REQUIRE_EQUAL(fixture.chain.user_depth, 2);
	CHECK_EQUAL(fixture.addresses[2], 0x401000);
	CHECK_EQUAL(fixture.addresses[3], 0x402000);
	CHECK_EQUAL(fixture.chain.flags, 0);
	/* Registers like those of a kernel thread. */
	push_registers(&fixture, registers, 0, 0, 0, 0);
	guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL, &fixture.chain);
	CHECK_EQUAL(fixture.chain.kernel_depth, 2);
	CHECK_EQUAL(fixture.chain.user_depth, 0);
	CHECK_EQUAL(fixture.chain.flags, 0);
	flat_guest_destroy(&fixture.guest);
}

TEST(unwind, kernel_frame_pointers_from_a_system_call_into_user_space)
{
	check_system_call(0);
	check_system_call(16); /* of a kernel with CONFIG_X86_FRED */
}

/* The frame pointer is its caller's, and leads to the caller's caller. */
TEST(unwind, kernel_function_before_its_frame_leads_to_its_caller)
{
	static const uint8_t begin[] = { 0x55, 0x48, 0x89, 0xe5 };

	for (unsigned int at = 0; at < 2; at++) {
		struct fixture fixture;

		make(&fixture);
		memcpy(fixture.guest.memory + TEXT_GPA + (code(5) - TEXT), begin, sizeof(begin));
		fixture.guest.registers.rip = code(5) + at;
		fixture.guest.registers.rbp = STACK + 0x20;
		push(&fixture, at * 8, code(2));
		push(&fixture, 0x28, code(3));
		guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL,
			     &fixture.chain);
		REQUIRE_EQUAL(fixture.chain.kernel_depth, 3);
		CHECK_EQUAL(fixture.addresses[1], code(2));
		CHECK_EQUAL(fixture.addresses[2], code(3));
		CHECK_EQUAL(fixture.chain.flags, 0);
		flat_guest_destroy(&fixture.guest);
	}
}

TEST(unwind, a_kernel_without_frame_pointers_gives_no_false_frames)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	push(&fixture, 0x1008, code(2));
	fixture.guest.registers.rsp = STACK + 0x2000;
	fixture.guest.registers.rbp = STACK + 0x1000; /* some pointer below the stack pointer */
	guest_unwind(NULL, &fixture.guest.view, &fixture.guest.registers, NULL, &fixture.chain);
	CHECK_EQUAL(fixture.chain.kernel_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_KERNEL_TRUNCATED);
}

static void write_u32(struct fixture *fixture, uint64_t offset, uint32_t value)
{
	memcpy(fixture->guest.memory + USER_STACK_GPA + offset, &value, sizeof(value));
}

TEST(unwind, user_frames_of_32_bit_programs)
{
	uint64_t low = 0xff000000;

	FIXTURE(struct fixture, fixture, make, destroy);
	map_user_text(&fixture, 0x8045000);
	put_user_call(&fixture, USER_TEXT + 0x4000); /* which is 0x8049000 */
	flat_guest_map(&fixture.guest, fixture.guest.registers.paging.cr3, low, USER_STACK_GPA,
		       4096, 4);
	fixture.guest.registers.cpl = 3;
	fixture.guest.registers.long_mode = false;
	fixture.guest.registers.rip = 0x8048000;
	fixture.guest.registers.rsp = low;
	fixture.guest.registers.rbp = low + 0x10;
	write_u32(&fixture, 0x10, 0);
	write_u32(&fixture, 0x14, 0x8049000);
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.kernel_depth, 0);
	REQUIRE_EQUAL(fixture.chain.user_depth, 2);
	CHECK_EQUAL(fixture.addresses[1], 0x8049000);
	CHECK_EQUAL(fixture.chain.flags, 0);
	write_u32(&fixture, 0x14, 0x8049010); /* not after a call */
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.user_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_USER_TRUNCATED);
}

TEST(unwind, user_programs_without_frame_pointers_are_flagged)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.guest.registers.cpl = 3;
	fixture.guest.registers.rip = 0x401000;
	fixture.guest.registers.rsp = USER_STACK + 0x100;
	fixture.guest.registers.rbp = 42;
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.user_depth, 1);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_USER_TRUNCATED);
	fixture.guest.registers.rbp = USER_STACK + 0x200; /* points to itself */
	push_user(&fixture, 0x200, USER_STACK + 0x200);
	push_user(&fixture, 0x208, 0x402000);
	unwind(&fixture);
	CHECK_EQUAL(fixture.chain.user_depth, 2);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_USER_TRUNCATED);
}

/* A program is at 0x401800, of which only the memory is known; RBP leads to 0 and CALLER. */
static void make_user(struct fixture *fixture, uint64_t caller)
{
	make(fixture);
	fixture->guest.registers.cpl = 3;
	fixture->guest.registers.long_mode = true;
	fixture->guest.registers.rip = 0x401800;
	fixture->guest.registers.rsp = USER_STACK + 0x100;
	fixture->guest.registers.rbp = USER_STACK + 0x200;
	push_user(fixture, 0x208, caller);
}

static void check_user_chain(struct fixture *fixture, unsigned int depth, uint8_t flags)
{
	unwind(fixture);
	CHECK_EQUAL(fixture->chain.kernel_depth, 0);
	CHECK_EQUAL(fixture->chain.user_depth, depth);
	CHECK_EQUAL(fixture->chain.flags, flags);
}

/* The program has no frame pointers, and RBP points to data on the stack. */
TEST(unwind, wrong_frame_pointer_does_not_lead_to_a_caller)
{
	const uint64_t data = 0x500000;
	uint64_t cr3;

	FIXTURE(struct fixture, fixture, make_user, destroy, 0x404000);
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED); /* not after a call */
	put_user_call(&fixture, 0x404000);
	check_user_chain(&fixture, 2, 0);
	CHECK_EQUAL(fixture.addresses[1], 0x404000);
	/* The same bytes in memory that is not executable, or not in user space. */
	cr3 = fixture.guest.registers.paging.cr3;
	push_user(&fixture, 0x208, data + 0x1000);
	flat_guest_map(&fixture.guest, cr3, data, USER_TEXT_GPA + 0x3000, 4096, 1ull << 63 | 4);
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	flat_guest_map(&fixture.guest, cr3, data, USER_TEXT_GPA + 0x3000, 4096, 0);
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	flat_guest_map(&fixture.guest, cr3, data, USER_TEXT_GPA + 0x3000, 4096, 4);
	check_user_chain(&fixture, 2, 0);
	push_user(&fixture, 0x208, 0x8000000000000000ull); /* not canonical */
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

/* A return address on the stack, but that of an outer caller, or of a call that has returned. */
TEST(unwind, call_of_another_function_is_not_a_caller)
{
	FIXTURE(struct fixture, fixture, make_user, destroy, 0x404000);
	put_direct_call(&fixture, 0x404000, 0x401700);
	check_user_chain(&fixture, 2, 0);
	put_direct_call(&fixture, 0x404000, 0x401810); /* a function after the one that returns */
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	put_direct_call(&fixture, 0x404000, 0x401800 - (64 << 10)); /* long before */
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

/* As generated by ld: endbr64; bnd jmp *slot(%rip). The slot is the last word of the page. */
TEST(unwind, call_through_a_PLT_leads_to_the_function_in_its_slot)
{
	static const uint8_t entry[] = {
		0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xed, 0x0f, 0, 0
	};

	FIXTURE(struct fixture, fixture, make_user, destroy, 0x404000);
	put_direct_call(&fixture, 0x404000, 0x401000);
	memcpy(user_code(&fixture, 0x401000), entry, sizeof(entry));
	flat_guest_write_u64(&fixture.guest, USER_TEXT_GPA + 0x1ff8, 0x401780);
	check_user_chain(&fixture, 2, 0);
	flat_guest_write_u64(&fixture.guest, USER_TEXT_GPA + 0x1ff8, 0x7f0000001000);
	check_user_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

/* RBP is its caller's, and leads to the caller's caller, which would seem to be the caller. */
TEST(unwind, function_without_a_frame_is_unwound_by_its_return_address)
{
	FIXTURE(struct fixture, fixture, make_user, destroy, 0x404000);
	put_user_call(&fixture, 0x404000);
	fixture.guest.registers.rsp = USER_STACK + 0x108;
	push_user(&fixture, 0x108, 0x404800);
	put_direct_call(&fixture, 0x404800, 0x401700);
	check_user_chain(&fixture, 3, 0);
	CHECK_EQUAL(fixture.addresses[1], 0x404800);
	CHECK_EQUAL(fixture.addresses[2], 0x404000);
	/* The word is left over from a call of another function, and the code has a frame. */
	put_direct_call(&fixture, 0x404800, 0x402000);
	check_user_chain(&fixture, 2, 0);
	CHECK_EQUAL(fixture.addresses[1], 0x404000);
}

/*
 * A 32-bit kernel, without PAE: its memory is one page of 4 MiB at PAGE_OFFSET. A system call is
 * interrupted; the interrupt has a stack of its own.
 */
#define KERNEL_32      0xc0000000u
#define STACK_32       (KERNEL_32 + 0x100000) /* end of the task's */
#define IRQ_STACK_32   (KERNEL_32 + 0x200000)
#define CODE_32        (KERNEL_32 + 0x10000)
#define USER_STACK_32  0x8050000u
#define USER_FRAME_GPA 0x300000u

static void put_32(struct flat_guest *guest, uint32_t gva, uint32_t value)
{
	memcpy(guest->memory + (gva - KERNEL_32), &value, sizeof(value));
}

/* struct pt_regs, with a BP. */
static void put_registers_32(struct flat_guest *guest, uint32_t at, uint32_t ip, uint32_t cs,
			     uint32_t sp, uint32_t bp)
{
	put_32(guest, at + 5 * 4, bp);
	put_32(guest, at + 12 * 4, ip);
	put_32(guest, at + 13 * 4, cs);
	put_32(guest, at + 15 * 4, sp);
}

static void make_guest_32(struct flat_guest *guest)
{
	uint32_t kernel = 0x83 /* present, writable, large */, user = USER_FRAME_GPA | 7;
	uint64_t directory = 0x3f0000, table = 0x3f1000;
	uint32_t table_entry = (uint32_t)table | 7;

	flat_guest_create(guest, 4 << 20);
	memcpy(guest->memory + directory + (KERNEL_32 >> 22) * 4, &kernel, 4);
	memcpy(guest->memory + directory + (USER_STACK_32 >> 22) * 4, &table_entry, 4);
	memcpy(guest->memory + table + (USER_STACK_32 >> 12 & 1023) * 4, &user, 4);
	guest->registers.paging =
		(struct guest_paging){ .cr0 = CR0_PE | CR0_PG, .cr3 = directory, .cr4 = CR4_PSE };
	guest->registers.long_mode = false;
	guest->registers.cpl = 0;
	/* A call before each return address, and code with a frame. */
	for (uint32_t at = CODE_32; at < CODE_32 + 0x1000; at += 16)
		put_32(guest, at - 8, 0xe8000000u); /* its last byte is 5 before AT */
}

TEST(unwind, frames_of_a_32_bit_kernel_up_to_user_space)
{
	struct guest_callchain chain = { .capacity = 16 };
	uint32_t pt_regs = STACK_32 - 16 - 68, interrupted = pt_regs - 0x200;
	uint64_t addresses[16];

	FIXTURE(struct flat_guest, guest, make_guest_32, flat_guest_destroy);
	chain.addresses = addresses;
	guest.registers.rip = CODE_32 + 0x100;
	guest.registers.rsp = IRQ_STACK_32 - 0x40;
	guest.registers.rbp = IRQ_STACK_32 - 0x20;
	/* From the interrupts' stack to the task's, whose frame has a mark for pt_regs as bp. */
	put_32(&guest, IRQ_STACK_32 - 0x20, interrupted - 0x40);
	put_32(&guest, IRQ_STACK_32 - 0x1c, CODE_32 + 0x200);
	put_32(&guest, interrupted - 0x40, interrupted & 0x7fffffff);
	put_32(&guest, interrupted - 0x3c, CODE_32 + 0x300);
	put_registers_32(&guest, interrupted, CODE_32 + 0x404, 0x60, interrupted + 68, pt_regs - 8);
	/* The outermost frame has the user's bp. */
	put_32(&guest, pt_regs - 8, USER_STACK_32 + 0x20);
	put_32(&guest, pt_regs - 4, CODE_32 + 0x500);
	put_registers_32(&guest, pt_regs, 0x8049000, 0x73, USER_STACK_32, USER_STACK_32 + 0x20);
	put_32(&guest, KERNEL_32 + USER_FRAME_GPA + 0x24, 0x804a000);
	guest_unwind(NULL, &guest.view, &guest.registers, NULL, &chain);
	REQUIRE_EQUAL(chain.kernel_depth, 5);
	CHECK_EQUAL(addresses[0], CODE_32 + 0x100);
	CHECK_EQUAL(addresses[1], CODE_32 + 0x200);
	CHECK_EQUAL(addresses[2], CODE_32 + 0x300);
	CHECK_EQUAL(addresses[3], CODE_32 + 0x404);
	CHECK_EQUAL(addresses[4], CODE_32 + 0x500);
	CHECK(chain.user_depth >= 1);
	CHECK_EQUAL(addresses[5], 0x8049000);
}
