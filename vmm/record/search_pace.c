/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/search_pace.h"

#include "vmm/guest/linux/guest_kernel.h"

static struct search_state place_of(const struct guest_registers *registers)
{
	/* A vCPU in this state runs no kernel, whatever its other registers are. */
	if (!guest_kernel_can_run(registers))
		return (struct search_state){ 0 };
	return (struct search_state){
		.cr3 = registers->paging.cr3,
		.idt_base = registers->idt_base,
		.upper = registers->rip >> (8 * guest_word_size(&registers->paging) - 1) & 1
	};
}

static bool is_same(const struct search_state *left, const struct search_state *right)
{
	return left->cr3 == right->cr3 && left->idt_base == right->idt_base &&
	       left->upper == right->upper;
}

static bool is_known(const struct search_pace *pace, const struct search_state *state)
{
	size_t count = pace->count < SEARCH_STATES ? pace->count : SEARCH_STATES;

	for (size_t i = 0; i < count; i++)
		if (is_same(&pace->states[i], state))
			return true;
	return false;
}

static bool is_over(const struct search_pace *pace, uint64_t pause, uint64_t now)
{
	return !pace->pause || now >= pace->last + pause;
}

static uint64_t pause_if_changed(const struct search_pace *pace)
{
	return pace->pause < SEARCH_PAUSE_CHANGED ? pace->pause : SEARCH_PAUSE_CHANGED;
}

bool search_pace_allows(const struct search_pace *pace, uint64_t now)
{
	return is_over(pace, pause_if_changed(pace), now) && cpu_budget_allows(&pace->work, now);
}

bool search_pace_is_due(const struct search_pace *pace, const struct guest_registers *registers,
			uint64_t now)
{
	struct search_state state = place_of(registers);

	return search_pace_allows(pace, now) &&
	       (is_over(pace, pace->pause, now) || !is_known(pace, &state));
}

void search_pace_searched(struct search_pace *pace, const struct guest_registers *registers,
			  uint64_t now, uint64_t work)
{
	struct search_state state = place_of(registers);

	cpu_budget_charge(&pace->work, now, work);
	pace->last = now;
	pace->pause = pace->pause ? pace->pause + pace->pause / 2 : SEARCH_PAUSE_MIN;
	if (pace->pause > SEARCH_PAUSE_MAX)
		pace->pause = SEARCH_PAUSE_MAX;
	if (!is_known(pace, &state))
		pace->states[pace->count++ % SEARCH_STATES] = state;
}

void search_pace_reset(struct search_pace *pace)
{
	*pace = (struct search_pace){ .work = pace->work };
	cpu_budget_refill(&pace->work);
}

bool search_pace_is_slow(const struct search_pace *pace)
{
	return pace->pause >= SEARCH_PAUSE_CHANGED;
}
