/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/user_stacks.h"

#define STEP 256u /* sizes are multiples of it */

static uint32_t larger(uint32_t one, uint32_t other)
{
	return one > other ? one : other;
}

/* A quarter more than chains have read: each chain that is cut costs more than the copies. */
static uint32_t size_for(uint32_t read)
{
	uint32_t size = larger(read + read / 4, USER_STACKS_LEAST);

	size = (size + STEP - 1) / STEP * STEP;
	return size < BPF_USER_STACK_MAX ? size : BPF_USER_STACK_MAX;
}

struct user_stack *user_stacks_find(struct user_stacks *self, uint64_t mm)
{
	struct user_stack *stack = &self->places[BPF_PROCESS_INDEX(mm)];

	if (stack->mm != mm)
		*stack = (struct user_stack){ .mm = mm, .size = BPF_USER_STACK_FIRST };
	return stack;
}

static void end_period(struct user_stack *stack)
{
	stack->size = size_for(larger(stack->read, stack->read_before));
	stack->read_before = stack->read;
	stack->read = stack->samples = 0;
}

bool user_stack_add_page(struct user_stack *stack, uint64_t start, uint64_t end, uint64_t address)
{
	for (unsigned int i = 0; i < BPF_PROCESS_PAGES; i++)
		if (stack->pages[i] && stack->pages[i] >= start && stack->pages[i] < end)
			return false;
	stack->pages[stack->page_count++ % BPF_PROCESS_PAGES] = address & ~4095ull;
	return true;
}

uint32_t user_stacks_note(struct user_stacks *self, uint64_t mm, size_t copied, uint64_t read)
{
	struct user_stack *stack = user_stacks_find(self, mm);
	uint32_t before = stack->size;

	/* Less than requested was copied: nothing more is mapped, or the request was an earlier
	 * one. */
	if (read > copied && copied >= before) {
		stack->size = BPF_USER_STACK_MAX;
		stack->read = stack->samples = 0;
	}
	stack->read = larger(stack->read, (uint32_t)(read < copied ? read : copied));
	if (++stack->samples == USER_STACKS_PERIOD)
		end_period(stack);
	return stack->size != before ? stack->size : 0;
}
