/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of copies of user stacks follow what call chains need. */
#include "tests/unit/shim/test.h"
#include "vmm/attach/user_stacks.h"

#define MM 0xffff888012345640ull

static uint32_t note(struct user_stacks *stacks, unsigned int count, size_t copied, uint64_t read)
{
	uint32_t size = 0;

	while (count--) {
		uint32_t changed = user_stacks_note(stacks, MM, copied, read);

		size = changed ? changed : size;
	}
	return size;
}

TEST(user_stacks, small_chains_need_small_copies)
{
	static struct user_stacks stacks;

	CHECK_EQUAL(note(&stacks, USER_STACKS_PERIOD - 1, BPF_USER_STACK_FIRST, 900), 0);
	CHECK_EQUAL(note(&stacks, 1, BPF_USER_STACK_FIRST, 900), 1280);
	CHECK_EQUAL(note(&stacks, 10 * USER_STACKS_PERIOD, 1280, 900), 0);
	CHECK_EQUAL(note(&stacks, 3 * USER_STACKS_PERIOD, 1280, 8), USER_STACKS_LEAST);
}

TEST(user_stacks, a_cut_chain_gets_the_largest_copy_and_then_what_it_needs)
{
	static struct user_stacks stacks;

	CHECK_EQUAL(note(&stacks, 1, BPF_USER_STACK_FIRST, BPF_USER_STACK_FIRST + 8),
		    BPF_USER_STACK_MAX);
	/* Copied before that took effect. */
	CHECK_EQUAL(note(&stacks, 3, BPF_USER_STACK_FIRST, BPF_USER_STACK_FIRST + 8), 0);
	CHECK_EQUAL(note(&stacks, USER_STACKS_PERIOD, BPF_USER_STACK_MAX, 10000), 12544);
	CHECK_EQUAL(note(&stacks, 100 * USER_STACKS_PERIOD, 12544, 10000), 0);
}

/* Nothing is mapped after the stack. */
TEST(user_stacks, the_end_of_a_stack_is_not_a_cut)
{
	static struct user_stacks stacks;

	CHECK_EQUAL(note(&stacks, 1, 800, 5000), 0);
}

TEST(user_stacks, the_largest_copy_is_bounded)
{
	static struct user_stacks stacks;

	note(&stacks, 1, BPF_USER_STACK_FIRST, 1ull << 40);
	CHECK_EQUAL(note(&stacks, 1000, BPF_USER_STACK_MAX, 1ull << 40), 0);
}
