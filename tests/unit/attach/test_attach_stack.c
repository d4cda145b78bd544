/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a copied kernel stack does not show later memory. */
#include <errno.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/sample_views.h"
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
