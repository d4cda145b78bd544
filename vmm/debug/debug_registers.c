/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/debug_registers.h"

#define BIT(number) (UINT64_C(1) << (number))

/* Fields of SLOT in DR7: L and G; R/W and LEN. */
#define ENABLE_BITS(slot)     (UINT64_C(3) << 2 * (slot))
#define ENABLE_GLOBAL(slot)   (UINT64_C(2) << 2 * (slot))
#define FIELD_SHIFT(slot)     (16 + 4 * (slot))
#define FIELD_BITS(slot)      (UINT64_C(0xf) << FIELD_SHIFT(slot))
#define FIELD(kind, length)   ((uint64_t)(kind) | (uint64_t)(length) << 2)
#define KIND_OF(dr7, slot)    ((dr7) >> FIELD_SHIFT(slot) & 3)
#define LENGTH_OF(dr7, slot)  ((dr7) >> (FIELD_SHIFT(slot) + 2) & 3)
#define IS_EXECUTE(dr7, slot) (KIND_OF(dr7, slot) == BREAKPOINT_EXECUTE)
#define DR6_RECOGNIZED_CAUSES (DR6_SLOTS | DR6_BD | DR6_BS | DR6_BT)

/* LEN of 1, 2, 8 and 4 bytes (SDM vol. 3B 18.2.4). */
static const uint8_t lengths[4] = { 1, 2, 8, 4 };

static unsigned int length_field(uint8_t length)
{
	for (unsigned int i = 0; i < 4; i++)
		if (lengths[i] == length)
			return i;
	return 0;
}

bool breakpoint_valid(const struct breakpoint *breakpoint)
{
	uint8_t length = breakpoint->length;

	if (length != 1 && length != 2 && length != 4 && length != 8)
		return false;
	if (breakpoint->kind == BREAKPOINT_EXECUTE && length != 1)
		return false;
	return breakpoint->address % length == 0;
}

uint8_t dr7_slots(uint64_t dr7)
{
	uint8_t slots = 0;

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (dr7 & ENABLE_BITS(slot))
			slots |= (uint8_t)BIT(slot);
	return slots;
}

struct breakpoint dr7_breakpoint(uint64_t dr7, unsigned int slot, uint64_t address)
{
	return (struct breakpoint){ .address = address,
				    .kind = (enum breakpoint_kind)KIND_OF(dr7, slot),
				    .length = lengths[LENGTH_OF(dr7, slot)] };
}

static void put_host(struct debug_plan *plan, unsigned int slot,
		     const struct breakpoint *breakpoint)
{
	plan->address[slot] = breakpoint->address;
	plan->dr7 &= ~(ENABLE_BITS(slot) | FIELD_BITS(slot));
	plan->dr7 |= ENABLE_GLOBAL(slot) | FIELD(breakpoint->kind, length_field(breakpoint->length))
						   << FIELD_SHIFT(slot);
}

struct debug_plan debug_plan_merge(const struct debug_registers *guest,
				   const struct breakpoint *host, uint8_t host_slots)
{
	struct debug_plan plan = {
		.dr7 = guest->dr7 | DR7_FIXED,
		.host = host_slots,
		.guest = dr7_slots(guest->dr7) & (uint8_t)~host_slots,
	};

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++) {
		plan.address[slot] = guest->address[slot];
		if (host_slots & BIT(slot))
			put_host(&plan, slot, &host[slot]);
	}
	if (host_slots)
		plan.dr7 |= DR7_GD | DR7_GE;
	return plan;
}

struct debug_plan debug_plan_for_step(const struct debug_plan *plan, uint64_t rip,
				      uint64_t guest_dr7)
{
	struct debug_plan step = *plan;

	step.dr7 = (plan->dr7 & ~DR7_GD) | (guest_dr7 & DR7_GD);
	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (IS_EXECUTE(plan->dr7, slot) && plan->address[slot] == rip)
			step.dr7 &= ~ENABLE_BITS(slot);
	step.host &= dr7_slots(step.dr7);
	step.guest &= dr7_slots(step.dr7);
	return step;
}

/* The execute breakpoints of PLAN. */
static uint8_t execute_slots(const struct debug_plan *plan)
{
	uint8_t slots = 0;

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++)
		if (IS_EXECUTE(plan->dr7, slot))
			slots |= (uint8_t)BIT(slot);
	return slots & dr7_slots(plan->dr7);
}

struct debug_verdict debug_classify(const struct debug_plan *plan, const struct debug_exit *exit)
{
	/* Bits of disabled slots may be set too (SDM vol. 3B 18.2.3). */
	uint8_t hit = exit->dr6 & dr7_slots(plan->dr7);
	uint8_t executed = hit & execute_slots(plan), accessed = hit & (uint8_t)~executed;
	bool again = exit->rflags &
		     RFLAGS_RF; /* only KVM's emulator reports it; the processor would not */
	bool guest_detect = exit->dr6 & exit->guest_dr7 & DR6_BD;
	bool host_detect = exit->dr6 & plan->dr7 & DR6_BD && !guest_detect;
	struct debug_verdict verdict = { .step_done = exit->stepping && exit->dr6 & DR6_BS };
	uint64_t trap = accessed & plan->guest, fault = again ? 0 : executed & plan->guest;

	_Static_assert(DR6_BD == DR7_GD, "one bit is in both at the same place");
	if (exit->dr6 & DR6_BS && (!exit->stepping || exit->guest_steps))
		trap |= DR6_BS;
	trap |= exit->dr6 & DR6_BT;
	fault |= guest_detect ? DR6_BD : 0;
	verdict.guest_dr6 = trap | fault;
	verdict.guest = verdict.guest_dr6;
	/*
	 * DR6 has no cause that is a set bit: INT1 (SDM vol. 3B 18.3.1.6), or a cause that is a
	 * clear bit. Neither is the host's.
	 */
	if (!(exit->dr6 & DR6_RECOGNIZED_CAUSES)) {
		verdict.guest = true;
		verdict.guest_low = ~exit->dr6 & (DR6_BLD | DR6_RTM);
	}
	verdict.host_hits = accessed & plan->host;
	if (!again && (!trap || executed & plan->guest))
		verdict.host_hits |= executed & plan->host;
	verdict.step = !verdict.guest && (executed || host_detect);
	verdict.resume = verdict.step && !host_detect && !again;
	return verdict;
}

struct debug_registers debug_after_guest_exception(const struct debug_registers *guest,
						   const struct debug_verdict *verdict)
{
	struct debug_registers after = *guest;

	/* The processor clears only the slots' bits (SDM vol. 3B 18.2.3), and GD (18.2.4). */
	after.dr6 = ((guest->dr6 & ~DR6_SLOTS) | verdict->guest_dr6) & ~verdict->guest_low;
	after.dr7 &= ~DR7_GD;
	return after;
}
