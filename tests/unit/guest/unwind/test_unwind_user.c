/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic user stacks. The program's code is a row of slots of 16 bytes with a rule each, mapped
 * at PROGRAM, followed by a library without a table. Real programs are tested in
 * test_unwind_steps.c.
 */
#include <stdlib.h>
#include <time.h>

#include "shared/sample_record.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/cfi_table.h"
#include "vmm/guest/unwind/unwind.h"

#define GUEST_SIZE  (1u << 20)
#define STACK       0x7ffc00000000ull /* maps to STACK_GPA, 4 KiB */
#define STACK_GPA   0x10000ull
#define PROGRAM     0x401000ull /* maps to CODE_GPA, 4 KiB; file offset 0x1000 */
#define LIBRARY     0x402000ull /* the same after it */
#define CODE_GPA    0x20000ull
#define DATA        0x500000ull
#define FILE_OFFSET 0x1000ull
#define SLOTS       32
#define STEP        16

struct fixture {
	struct flat_guest guest;
	struct cfi_rule rules[SLOTS]; /* of each slot's code */
	struct cfi_table *table;
	struct user_images *images;
	struct user_map map;
	uint64_t addresses[16];
	struct guest_callchain chain;
};

static uint64_t code(unsigned int slot)
{
	return PROGRAM + slot * STEP + 4;
}

static struct cfi_rule frame(enum dwarf_register base, int32_t offset)
{
	return (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				  .cfa_register = (uint8_t)base,
				  .cfa_offset = offset,
				  .ip = CFI_AT_CFA,
				  .ip_offset = -8 };
}

static struct cfi_rule outermost(void)
{
	return (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
				  .cfa_register = DWARF_RSP,
				  .ip = CFI_UNDEFINED };
}

static void map_page(struct fixture *fixture, uint64_t gva, uint64_t gpa)
{
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, gva, gpa, 4096, 4);
}

static void add_mapping(struct fixture *fixture, uint64_t start, uint32_t flags)
{
	struct user_image_key key = { .kind = USER_IMAGE_FILE, .inode = start };

	fixture->map.mappings[fixture->map.count++] =
		(struct user_mapping){ .start = start,
				       .end = start + 0x1000,
				       .offset = FILE_OFFSET,
				       .flags = flags,
				       .image = user_images_find(fixture->images, &key) };
}

static void make(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	flat_guest_create(&fixture->guest, GUEST_SIZE);
	map_page(fixture, STACK, STACK_GPA);
	map_page(fixture, PROGRAM, CODE_GPA);
	map_page(fixture, LIBRARY, CODE_GPA + 0x1000);
	REQUIRE_EQUAL(user_images_create(&fixture->images), 0);
	add_mapping(fixture, PROGRAM, USER_MAPPING_READ | USER_MAPPING_EXEC);
	add_mapping(fixture, LIBRARY, USER_MAPPING_READ | USER_MAPPING_EXEC);
	add_mapping(fixture, DATA, USER_MAPPING_READ);
	user_image_set_cfi(fixture->map.mappings[1].image, NULL);
	for (unsigned int i = 0; i < SLOTS; i++)
		fixture->rules[i] = frame(DWARF_RSP, 8);
	fixture->chain.addresses = fixture->addresses;
	fixture->chain.capacity = 16;
	fixture->guest.registers.cpl = 3;
	fixture->guest.registers.rip = code(1);
	fixture->guest.registers.rsp = STACK;
}

static void push(struct fixture *fixture, uint64_t offset, uint64_t value)
{
	flat_guest_write_u64(&fixture->guest, STACK_GPA + offset, value);
}

/* A call of five bytes that ends before ADDRESS. */
static void put_call(struct fixture *fixture, uint64_t address)
{
	fixture->guest.memory[CODE_GPA + (address - PROGRAM) - 5] = 0xe8;
}

static void build_table(struct fixture *fixture)
{
	struct cfi_builder *builder = cfi_builder_new();

	REQUIRE(builder);
	for (unsigned int i = 0; i < SLOTS; i++)
		if (fixture->rules[i].cfa != CFI_CFA_NONE)
			REQUIRE_EQUAL(cfi_builder_add(builder, FILE_OFFSET + i * STEP,
						      FILE_OFFSET + (i + 1) * STEP,
						      &fixture->rules[i]),
				      0);
	REQUIRE_EQUAL(cfi_builder_finish(builder, &fixture->table), 0);
	user_image_set_cfi(fixture->map.mappings[0].image, fixture->table);
}

static void unwind(struct fixture *fixture)
{
	if (!fixture->table)
		build_table(fixture);
	guest_unwind(NULL, &fixture->guest.view, &fixture->guest.registers, &fixture->map,
		     &fixture->chain);
}

/* The chain has DEPTH addresses and FLAGS. */
static void check_chain(struct fixture *fixture, unsigned int depth, unsigned int flags)
{
	unwind(fixture);
	CHECK_EQUAL(fixture->chain.kernel_depth, 0);
	CHECK_EQUAL(fixture->chain.user_depth, depth);
	CHECK_EQUAL(fixture->chain.flags, flags);
}

static void destroy(struct fixture *fixture)
{
	user_images_free(fixture->images);
	cfi_table_free(fixture->table);
	flat_guest_destroy(&fixture->guest);
}

TEST(unwind_user, frames_by_tables_to_the_outermost)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = frame(DWARF_RSP, 24);
	fixture.rules[1].bp = CFI_AT_CFA;
	fixture.rules[1].bp_offset = -16;
	fixture.rules[2] = frame(DWARF_RBP, 16);
	fixture.rules[3] = outermost();
	push(&fixture, 8, STACK + 0x40);
	push(&fixture, 16, code(2));
	push(&fixture, 0x48, code(3));
	check_chain(&fixture, 3, 0);
	CHECK_EQUAL(fixture.addresses[0], code(1));
	CHECK_EQUAL(fixture.addresses[1], code(2));
	CHECK_EQUAL(fixture.addresses[2], code(3));
}

/* The call is the last instruction of slot 2, and slot 3 has another rule. */
TEST(unwind_user, return_address_may_be_after_its_function)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[2] = outermost();
	fixture.rules[3] = (struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN };
	push(&fixture, 0, PROGRAM + 3 * STEP);
	check_chain(&fixture, 2, 0);
}

TEST(unwind_user, unknown_rule_ends_the_chain_with_a_flag)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[2] = (struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN };
	push(&fixture, 0, code(2));
	fixture.guest.registers.rbp = STACK + 0x40; /* looks like a frame, but is not */
	push(&fixture, 0x48, code(3));
	put_call(&fixture, code(3));
	check_chain(&fixture, 2, SAMPLE_USER_TRUNCATED);
}

TEST(unwind_user, registers_are_used_only_before_the_first_call)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = frame(DWARF_R10, 0);
	fixture.rules[2] = frame(DWARF_R10, 0);
	fixture.guest.registers.r10 = STACK + 0x20;
	push(&fixture, 0x18, code(2));
	check_chain(&fixture, 2, SAMPLE_USER_TRUNCATED);
	CHECK_EQUAL(fixture.addresses[1], code(2));
}

/* As in the dynamic linker: the frame that looks up a function has its CFA in RBX. */
TEST(unwind_user, rbx_is_known_in_callers_too)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = frame(DWARF_RSP, 24);
	fixture.rules[1].bx = CFI_AT_CFA;
	fixture.rules[1].bx_offset = -24;
	fixture.rules[2] = frame(DWARF_RBX, 16);
	fixture.rules[3] = outermost();
	push(&fixture, 0, STACK + 0x80);
	push(&fixture, 16, code(2));
	push(&fixture, 0x88, code(3));
	check_chain(&fixture, 3, 0);
}

TEST(unwind_user, a_lost_frame_pointer_matters_only_where_it_is_needed)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1].bp = CFI_UNDEFINED;
	fixture.rules[3] = frame(DWARF_RBP, 16);
	fixture.guest.registers.rbp = STACK + 0x40;
	push(&fixture, 0, code(2));
	push(&fixture, 8, code(3));
	push(&fixture, 0x48, code(4));
	check_chain(&fixture, 3, SAMPLE_USER_TRUNCATED);
}

TEST(unwind_user, missing_pages_end_the_chain)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = frame(DWARF_RSP, 0x1008);
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	fixture.guest.registers.rsp = STACK + 1;
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

TEST(unwind_user, data_is_not_a_caller)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	push(&fixture, 0, DATA + 8);
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	push(&fixture, 0, 0x700000); /* nothing is known to be there */
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	push(&fixture, 0, 0); /* the start of a thread that was made by hand */
	check_chain(&fixture, 1, 0);
}

TEST(unwind_user, kernel_address_is_not_a_caller)
{
	const uint64_t kernel = 0xffffffff81000010ull;

	FIXTURE(struct fixture, fixture, make, destroy);
	map_page(&fixture, kernel & ~0xfffull, CODE_GPA);
	put_call(&fixture, PROGRAM + (kernel & 0xfff));
	push(&fixture, 0, kernel);
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

TEST(unwind_user, code_without_a_table_needs_a_caller_after_a_call)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[2] = outermost();
	fixture.guest.registers.rip = LIBRARY + 0x20;
	fixture.guest.registers.rbp = STACK + 0x20;
	push(&fixture, 0x28, code(2));
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	put_call(&fixture, code(2));
	check_chain(&fixture, 2, 0);
	CHECK_EQUAL(fixture.addresses[1], code(2));
}

/* As before, but it calls another function: RBP may be its caller's, or anything. */
TEST(unwind_user, call_of_another_function_is_not_a_caller_of_compiled_code)
{
	static const int32_t distance = 0x4000;

	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[2] = outermost();
	fixture.guest.registers.rip = LIBRARY + 0x20;
	fixture.guest.registers.rbp = STACK + 0x20;
	push(&fixture, 0x28, code(2));
	put_call(&fixture, code(2));
	memcpy(fixture.guest.memory + CODE_GPA + (code(2) - PROGRAM) - 4, &distance, 4);
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
}

static void check_lost_in_library(struct fixture *fixture)
{
	fixture->rules[2] = outermost();
	fixture->guest.registers.rip = LIBRARY + 0x20;
	fixture->guest.registers.rbp = STACK + 0x20;
	push(fixture, 0x28, code(2));
	put_call(fixture, code(2));
	check_chain(fixture, 1, SAMPLE_USER_TRUNCATED);
}

/* It may have no frame pointers: then they do not lead to its caller. */
TEST(unwind_user, code_with_a_pending_table_ends_the_chain)
{
	struct user_image_key key = { .kind = USER_IMAGE_FILE, .inode = 1 };

	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.map.mappings[1].image = user_images_find(fixture.images, &key);
	check_lost_in_library(&fixture);
	user_image_set_cfi(fixture.map.mappings[1].image, NULL);
	check_chain(&fixture, 2, 0);
}

TEST(unwind_user, code_of_an_unknown_image_ends_the_chain)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.map.mappings[1].image = NULL;
	check_lost_in_library(&fixture);
}

TEST(unwind_user, generated_code_is_unwound_by_its_frame_pointer)
{
	struct user_image_key key = { .kind = USER_IMAGE_ANONYMOUS };

	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.map.mappings[1].image = user_images_find(fixture.images, &key);
	fixture.rules[2] = outermost();
	fixture.guest.registers.rip = LIBRARY + 0x20;
	fixture.guest.registers.rbp = STACK + 0x20;
	push(&fixture, 0x28, code(2));
	put_call(&fixture, code(2));
	check_chain(&fixture, 2, 0);
}

#define JIT (LIBRARY + 0x20)

/*
 * The code at JIT was interrupted at byte AT; the stack has 6 words: the frame that bp leads to,
 * and below.
 */
static void make_jit(struct fixture *fixture, const char *bytes, size_t size, unsigned int at)
{
	struct user_image_key key = { .kind = USER_IMAGE_ANONYMOUS };

	make(fixture);
	fixture->map.mappings[1].image = user_images_find(fixture->images, &key);
	memcpy(fixture->guest.memory + CODE_GPA + (JIT - PROGRAM), bytes, size);
	fixture->rules[2] = fixture->rules[3] = outermost();
	put_call(fixture, code(2));
	put_call(fixture, code(3));
	fixture->guest.registers.rip = JIT + at;
	fixture->guest.registers.rbp = STACK + 0x20;
	push(fixture, 0x28, code(3));
}

static void check_caller(struct fixture *fixture, uint64_t caller)
{
	check_chain(fixture, 2, 0);
	CHECK_EQUAL(fixture->addresses[1], caller);
	destroy(fixture);
}

/* bp is its caller's before it has set up its frame, and after it has torn it down. */
TEST(unwind_user, generated_code_has_no_frame_at_its_start_and_end)
{
	static const char function[] =
		"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\x48\xff\xcf\x75\xfb\x5d\xc3";
	static const unsigned int none[] = { 0, 4, 14 }, made[] = { 8, 11, 13 };
	struct fixture fixture;

	for (size_t i = 0; i < 3; i++) {
		make_jit(&fixture, function, sizeof(function) - 1, none[i]);
		push(&fixture, 0, code(2));
		check_caller(&fixture, code(2));
		make_jit(&fixture, function, sizeof(function) - 1, made[i]);
		push(&fixture, 0, code(2));
		check_caller(&fixture, code(3));
	}
	make_jit(&fixture, function, sizeof(function) - 1, 5);
	push(&fixture, 0, STACK + 0x20);
	push(&fixture, 8, code(2));
	check_caller(&fixture, code(2));
}

/* bp is that of _dl_fini there, whose caller must not be reported. */
TEST(unwind_user, fini_has_no_frame)
{
	static const char fini[] = "\xf3\x0f\x1e\xfa\x48\x83\xec\x08\x48\x83\xc4\x08\xc3";
	static const unsigned int none[] = { 0, 4, 12 };
	struct fixture fixture;

	for (size_t i = 0; i < 3; i++) {
		make_jit(&fixture, fini, sizeof(fini) - 1, none[i]);
		push(&fixture, 0, code(2));
		check_caller(&fixture, code(2));
	}
	make_jit(&fixture, fini, sizeof(fini) - 1, 8);
	push(&fixture, 8, code(2));
	check_caller(&fixture, code(2));
}

/*
 * V8 first checks whether its code is still valid. Code that may be such a check has no known
 * caller.
 */
TEST(unwind_user, code_before_its_prologue_has_no_known_caller)
{
	static const char function[] =
		"\x48\x8b\x59\xf0\xf6\x43\x0f\x01\x0f\x85\x11\x22\x33\x44\x55\x48\x8b\xec\x56";
	static const char end[] = "\x48\xff\xcf\x75\xfb\x5d\xc3\x55\x48\x89\xe5";
	struct fixture fixture;

	make_jit(&fixture, function, sizeof(function) - 1, 0);
	push(&fixture, 0, code(2));
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	destroy(&fixture);
	/* After a return, another function begins. */
	make_jit(&fixture, end, sizeof(end) - 1, 0);
	push(&fixture, 0, code(2));
	check_caller(&fixture, code(3));
}

static void check_no_caller(struct fixture *fixture)
{
	push(fixture, 0, code(2));
	check_chain(fixture, 1, SAMPLE_USER_TRUNCATED);
	destroy(fixture);
}

/*
 * Operands that look like the end of a function: `mov %rax, %rbx`, a distance, the padding of a
 * NOP.
 */
TEST(unwind_user, bytes_like_a_return_do_not_end_code_before_its_frame)
{
	static const char *const functions[] = {
		"\x48\x89\xc3\xf6\x43\x0f\x01\x55\x48\x89\xe5",
		"\x0f\x85\xcc\x90\xc3\xff\x90\x55\x48\x89\xe5",
	};
	static const char padded[] =
		"\x48\xff\xcf\xc3\x66\x0f\x1f\x44\x00\x00\xcc\x90\x55\x48\x89\xe5";
	struct fixture fixture;

	for (size_t i = 0; i < 2; i++) {
		make_jit(&fixture, functions[i], strlen(functions[i]), 0);
		check_no_caller(&fixture);
	}
	make_jit(&fixture, padded, sizeof(padded) - 1, 0);
	push(&fixture, 0, code(2));
	check_caller(&fixture, code(3));
}

/* The frame is torn down, and more code follows before the return: bp is the caller's. */
TEST(unwind_user, code_after_its_frame_has_no_known_caller)
{
	static const struct {
		const char *bytes;
		unsigned int size, at[3];
	} ends[] = {
		/* pop; jmp */
		{ "\x48\xff\xcf\x5d\xe9\x11\x22\x33\x00", 9, { 4, 4, 4 } },
		/* leave; pop %rcx; lea (%rsp, %r10, 8), %rsp; push %rcx; ret */
		{ "\x48\xff\xcf\xc9\x59\x4a\x8d\x24\xd4\x51\xc3", 11, { 4, 5, 9 } },
		/* pop; cmp poll(%r15), %rsp; ja; ret */
		{ "\x48\x83\xc4\x10\x5d\x49\x3b\xa7\x48\x04\x00\x00\x0f\x87\x01\x00\x00\x00\xc3",
		  19,
		  { 5, 12, 12 } },
	};
	/* mov -24(%rbp), %rbx; inc; then the end */
	static const char made[] = "\x48\x8b\x5d\xe8\x48\xff\xc3\x5d\xc3";
	struct fixture fixture;

	for (size_t i = 0; i < 3; i++)
		for (size_t j = 0; j < 3; j++) {
			make_jit(&fixture, ends[i].bytes, ends[i].size, ends[i].at[j]);
			check_no_caller(&fixture);
		}
	make_jit(&fixture, made, sizeof(made) - 1, 4);
	push(&fixture, 0, code(2));
	check_caller(&fixture, code(3));
}

#define PAGE_END (LIBRARY + 0xffe)

/* Interrupted two bytes before the end of JIT's page. */
static void make_at_page_end(struct fixture *fixture, const char *bytes, size_t size)
{
	make_jit(fixture, "", 0, 0);
	memcpy(fixture->guest.memory + CODE_GPA + (PAGE_END - PROGRAM), bytes, size);
	fixture->guest.registers.rip = PAGE_END;
}

/* The prologue may be in the next page. */
TEST(unwind_user, code_is_read_across_the_end_of_a_page)
{
	static const char function[] = "\xff\xcf\x55\x48\x89\xe5",
			  made[] = "\xff\xcf\x75\xfb\x5d\xc3";
	struct fixture fixture;

	make_at_page_end(&fixture, function, sizeof(function) - 1);
	check_no_caller(&fixture); /* it is unreadable */
	make_at_page_end(&fixture, function, sizeof(function) - 1);
	map_page(&fixture, LIBRARY + 0x1000, CODE_GPA + 0x2000);
	check_no_caller(&fixture);
	make_at_page_end(&fixture, made, sizeof(made) - 1);
	map_page(&fixture, LIBRARY + 0x1000, CODE_GPA + 0x2000);
	push(&fixture, 0, code(2));
	check_caller(&fixture, code(3));
}

/* In a program with a table, code without an FDE, such as handwritten code. */
TEST(unwind_user, code_that_the_table_does_not_describe_is_unwound_by_its_frame_pointer)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = (struct cfi_rule){ .cfa = CFI_CFA_NONE };
	fixture.rules[2] = outermost();
	fixture.guest.registers.rbp = STACK + 0x20;
	push(&fixture, 0x28, code(2));
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	put_call(&fixture, code(2));
	check_chain(&fixture, 2, 0);
	fixture.guest.registers.rbp = 0;
	check_chain(&fixture, 1, 0); /* _start of the dynamic linker */
}

/* struct rt_sigframe at STACK, whose trampoline has no FDE. The interrupted instruction is the
 * first of slot 3. */
TEST(unwind_user, a_signal_frame_is_known_by_its_trampoline)
{
	static const uint8_t trampoline[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };

	FIXTURE(struct fixture, fixture, make, destroy);
	memcpy(fixture.guest.memory + CODE_GPA + 0x1100, trampoline, sizeof(trampoline));
	fixture.rules[1] = frame(DWARF_RSP, 8);
	fixture.rules[2] = (struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN };
	fixture.rules[3] = frame(DWARF_RBP, 16);
	fixture.rules[4] = frame(DWARF_RBX, 16);
	fixture.rules[5] = outermost();
	push(&fixture, 0, LIBRARY + 0x100); /* RSP is above it in the handler's caller */
	push(&fixture, 8 + 120, STACK + 0x400);
	push(&fixture, 8 + 128, STACK + 0x500);
	push(&fixture, 8 + 160, STACK + 0x300);
	push(&fixture, 8 + 168, PROGRAM + 3 * STEP);
	push(&fixture, 0x408, code(4));
	push(&fixture, 0x508, code(5));
	check_chain(&fixture, 5, 0);
	CHECK_EQUAL(fixture.addresses[1], LIBRARY + 0x100);
	CHECK_EQUAL(fixture.addresses[2], PROGRAM + 3 * STEP);
	CHECK_EQUAL(fixture.addresses[3], code(4));
	CHECK_EQUAL(fixture.addresses[4], code(5));
}

TEST(unwind_user, stacks_grow_downwards_but_for_signals)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.guest.registers.rsp = STACK + 0x100;
	fixture.rules[1] = frame(DWARF_RSP, -0x80);
	fixture.rules[2] = outermost();
	push(&fixture, 0x78, code(2));
	check_chain(&fixture, 1, SAMPLE_USER_TRUNCATED);
	cfi_table_free(fixture.table);
	fixture.table = NULL;
	fixture.rules[1].signal = 1;
	check_chain(&fixture, 2, 0);
}

TEST(unwind_user, endless_chains_end_at_the_capacity)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.rules[1] = frame(DWARF_RSP, 0);
	fixture.rules[1].ip_offset = 0; /* itself, for ever */
	push(&fixture, 0, code(1));
	check_chain(&fixture, 16, SAMPLE_USER_TRUNCATED);
}

/* The deadline is not checked for each frame. */
TEST(unwind_user, deadline_ends_the_chain_with_a_flag)
{
	struct timespec now;

	FIXTURE(struct fixture, fixture, make, destroy);
	for (uint64_t at = 0; at < 14 * 8; at += 8)
		push(&fixture, at, code(1));
	fixture.rules[2] = outermost();
	push(&fixture, 14 * 8, code(2));
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	fixture.chain.deadline = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
	unwind(&fixture);
	CHECK(fixture.chain.user_depth >= 1 && fixture.chain.user_depth < 16);
	CHECK_EQUAL(fixture.chain.flags, SAMPLE_USER_TRUNCATED);
	fixture.chain.deadline = UINT64_MAX;
	check_chain(&fixture, 16, 0);
}

TEST(unwind_user, programs_of_32_bits_have_frame_pointers_only)
{
	FIXTURE(struct fixture, fixture, make, destroy);
	fixture.guest.registers.long_mode = false;
	fixture.guest.registers.rsp = STACK & UINT32_MAX;
	push(&fixture, 0, code(2));
	fixture.guest.registers.rbp = 0;
	check_chain(&fixture, 1, 0);
}
