/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a copied kernel stack does not show later memory. */
#include <errno.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/sample_views.h"
#include "vmm/attach/user_space.h"
#include "vmm/guest/page_walk.h"

#define TEXT   0x10000ull
#define MODULE 0x30000ull
#define RSP    0x58f00ull /* in the last words of a page, so the copy crosses its end */
#define MEMORY 0x80000u

static uint8_t memory[MEMORY];
static const struct guest_region region = { .gpa = 0, .size = MEMORY, .hva = memory };
static const struct guest_view live = { .regions = &region, .region_count = 1 };
static struct guest_module module = { .name = "module", .start = MODULE, .size = 0x1000 };

/* Without paging, so that a GVA is a GPA; all memory is later than the copy. */
static void start(struct stack_view *view, struct guest_kernel *kernel,
		  struct attach_guest_state *stack, const uint64_t *copy, size_t size)
{
	memset(memory, 0xee, sizeof(memory));
	*kernel = (struct guest_kernel){
		.text_start = TEXT, .text_end = TEXT + 0x2000, .modules = &module, .module_count = 1
	};
	*stack = (struct attach_guest_state){ .registers = { .rsp = RSP }, .copied = size };
	stack->stacks[ATTACH_STACK_IN_USE] =
		(struct attach_stack){ .gva = RSP, .size = size, .bytes = (const void *)copy };
	stack_view_init(view, &live, kernel, stack);
}

static int read_word(const struct stack_view *view, uint64_t gva, uint64_t *word)
{
	const struct guest_paging paging = { 0 };

	return guest_read_virtual(&view->view, &paging, gva, word, sizeof(*word));
}

TEST(attach_stack, has_the_stack_of_the_sample)
{
	uint64_t copy[64], word = 0;
	struct guest_kernel kernel;
	struct attach_guest_state stack;
	struct stack_view view;

	for (uint64_t i = 0; i < 64; i++)
		copy[i] = i;
	start(&view, &kernel, &stack, copy, sizeof(copy));
	for (uint64_t i = 0; i < 64; i++) {
		CHECK_EQUAL(read_word(&view, RSP + 8 * i, &word), 0);
		CHECK_EQUAL(word, i);
	}
}

TEST(attach_stack, only_the_copied_part_of_the_stack_is_readable)
{
	uint64_t copy[64] = { 0 }, word;
	struct guest_kernel kernel;
	struct attach_guest_state stack;
	struct stack_view view;

	start(&view, &kernel, &stack, copy, sizeof(copy));
	CHECK_EQUAL(read_word(&view, RSP - 8, &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, RSP + sizeof(copy), &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, RSP + sizeof(copy) - 4, &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, 0x70000, &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, UINT64_MAX - 7, &word), -EFAULT);
	start(&view, &kernel, &stack, NULL, 0);
	CHECK_EQUAL(read_word(&view, RSP, &word), -EFAULT);
}

TEST(attach_stack, code_is_read_from_current_memory)
{
	uint64_t copy[2] = { 0 }, word = 0;
	struct guest_kernel kernel;
	struct attach_guest_state stack;
	struct stack_view view;

	start(&view, &kernel, &stack, copy, sizeof(copy));
	CHECK_EQUAL(read_word(&view, TEXT, &word), 0);
	CHECK_EQUAL(word, 0xeeeeeeeeeeeeeeee);
	CHECK_EQUAL(read_word(&view, MODULE + 0x800, &word), 0);
	CHECK_EQUAL(read_word(&view, MODULE + 0x1000, &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, TEXT + 0x2000, &word), -EFAULT);
	CHECK_EQUAL(read_word(&view, TEXT - 8, &word), -EFAULT);
}

/* Until a kernel is found, as at a stop. */
TEST(attach_stack, a_kernel_that_is_not_known_is_unwound_by_frame_pointers)
{
	enum { CODE = 0x1000, STACK = 0x8000 };
	const uint64_t top = 0xffffffff80000000ull, rsp = top + STACK;
	/* Of four levels; the last is a page of 2 MiB at GPA 0. */
	const uint64_t tables[] = { 0x3003, 0x4003, 0x83 }, indexes[] = { 511, 510, 0 };
	static const uint8_t push[] = { 0x90, 0x90 }, call[] = { 0xe8, 0, 0, 0, 0 };
	/* The frame of the sampled function, and of its caller, whose own caller made no call. */
	const uint64_t copy[] = { rsp + 16, top + CODE + 0x105, 0, top + CODE + 0x200 };
	struct attach_guest_state stack = {
		.registers = { .rip = top + CODE, .rsp = rsp, .rbp = rsp, .long_mode = true },
		.copied = sizeof(copy),
	};
	const struct sample sample = { .time = 1, .rip = top + CODE };
	uint64_t addresses[8] = { 0 };
	struct guest_callchain chain = { .capacity = 8, .addresses = addresses };
	static struct user_space space;

	memset(memory, 0, sizeof(memory));
	memcpy(memory + CODE, push, sizeof(push));
	memcpy(memory + CODE + 0x100, call, sizeof(call));
	for (size_t i = 0; i < 3; i++)
		memcpy(memory + 0x2000 + i * 0x1000 + indexes[i] * 8, &tables[i], 8);
	/* PG; PAE; LMA and NXE. */
	stack.registers.paging = (struct guest_paging){
		.cr0 = 1u << 31, .cr3 = 0x2000, .cr4 = 1 << 5, .efer = 1 << 10 | 1 << 11
	};
	stack.stacks[ATTACH_STACK_IN_USE] = (struct attach_stack){ .gva = rsp,
								   .size = sizeof(copy),
								   .bytes = (const void *)copy };
	user_space_unwind_unknown(&live, &stack, &sample, &chain, &space);
	REQUIRE_EQUAL(chain.kernel_depth, 2);
	CHECK_EQUAL(addresses[1], top + CODE + 0x105);
	CHECK(chain.flags & SAMPLE_KERNEL_TRUNCATED);
}
