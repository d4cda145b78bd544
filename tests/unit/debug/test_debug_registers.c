/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section numbers are those of the Intel SDM vol. 3B chapter 18 and of the AMD
 * APM vol. 2 chapter 13.
 */
#include "tests/unit/shim/test.h"
#include "vmm/debug/debug_registers.h"

#define EXECUTED 0x1000ull
#define WRITTEN  0x2000ull

TEST(debug_registers, dr7_has_each_kind_and_length)
{
	/* 18.2.4, APM 13.1.1.4: R/W 00 01 10 11 execute, write, I/O, access; LEN 00 01 10 11: 1, 2,
	 * 8, 4. */
	static const struct {
		enum breakpoint_kind kind;
		uint8_t length;
		uint64_t field;
	} cases[] = {
		{ BREAKPOINT_EXECUTE, 1, 0x0 }, { BREAKPOINT_WRITE, 1, 0x1 },
		{ BREAKPOINT_WRITE, 2, 0x5 },   { BREAKPOINT_WRITE, 4, 0xd },
		{ BREAKPOINT_WRITE, 8, 0x9 },   { BREAKPOINT_ACCESS, 1, 0x3 },
		{ BREAKPOINT_ACCESS, 2, 0x7 },  { BREAKPOINT_ACCESS, 4, 0xf },
		{ BREAKPOINT_ACCESS, 8, 0xb },  { BREAKPOINT_IO, 1, 0x2 },
		{ BREAKPOINT_IO, 2, 0x6 },      { BREAKPOINT_IO, 4, 0xe },
	};
	const struct debug_registers guest = { .dr6 = DR6_NOTHING, .dr7 = DR7_FIXED };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++) {
			struct breakpoint host[DEBUG_SLOTS] = { 0 }, decoded;
			struct debug_plan plan;

			host[slot] = (struct breakpoint){ 0x12340, cases[i].kind, cases[i].length };
			plan = debug_plan_merge(&guest, host, (uint8_t)(1 << slot));
			CHECK_EQUAL(plan.dr7, DR7_FIXED | DR7_GD | DR7_GE | 2ull << 2 * slot |
						      cases[i].field << (16 + 4 * slot));
			CHECK_EQUAL(plan.address[slot], 0x12340);
			CHECK_EQUAL(dr7_slots(plan.dr7), 1 << slot);
			decoded = dr7_breakpoint(plan.dr7, slot, plan.address[slot]);
			CHECK_EQUAL(decoded.kind, cases[i].kind);
			CHECK_EQUAL(decoded.length, cases[i].length);
		}
}

TEST(debug_registers, breakpoints_are_checked)
{
	/* 18.2.5: aligned to the length; 18.2.4: LEN is 00 to execute. */
	CHECK(breakpoint_valid(&(struct breakpoint){ 0x1001, BREAKPOINT_EXECUTE, 1 }));
	CHECK(breakpoint_valid(&(struct breakpoint){ 0x1008, BREAKPOINT_WRITE, 8 }));
	CHECK(!breakpoint_valid(&(struct breakpoint){ 0x1004, BREAKPOINT_WRITE, 8 }));
	CHECK(!breakpoint_valid(&(struct breakpoint){ 0x1001, BREAKPOINT_ACCESS, 2 }));
	CHECK(!breakpoint_valid(&(struct breakpoint){ 0x1000, BREAKPOINT_WRITE, 3 }));
	CHECK(!breakpoint_valid(&(struct breakpoint){ 0x1000, BREAKPOINT_WRITE, 0 }));
	CHECK(!breakpoint_valid(&(struct breakpoint){ 0x1000, BREAKPOINT_EXECUTE, 4 }));
}

/* Owner and kind of a slot. */
enum owner { NOBODY, HOST_EXECUTE, HOST_WRITE, GUEST_EXECUTE, GUEST_WRITE, OWNERS };

struct owners {
	enum owner slots[DEBUG_SLOTS];
	struct debug_registers guest;
	struct debug_plan plan;
};

static void set_owners(struct owners *owners, unsigned int number)
{
	struct breakpoint host[DEBUG_SLOTS] = { 0 };
	uint8_t host_slots = 0;

	owners->guest = (struct debug_registers){ .dr6 = DR6_NOTHING, .dr7 = DR7_FIXED };
	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++, number /= OWNERS) {
		enum owner owner = (enum owner)(number % OWNERS);

		owners->slots[slot] = owner;
		owners->guest.address[slot] = owner == GUEST_EXECUTE ? EXECUTED : WRITTEN;
		if (owner == GUEST_EXECUTE || owner == GUEST_WRITE)
			owners->guest.dr7 |= 1ull << 2 * slot; /* L */
		if (owner == GUEST_WRITE)
			owners->guest.dr7 |= 0xdull << (16 + 4 * slot);
		if (owner == HOST_EXECUTE)
			host[slot] = (struct breakpoint){ EXECUTED, BREAKPOINT_EXECUTE, 1 };
		if (owner == HOST_WRITE)
			host[slot] = (struct breakpoint){ WRITTEN, BREAKPOINT_WRITE, 4 };
		if (owner == HOST_EXECUTE || owner == HOST_WRITE)
			host_slots |= (uint8_t)(1 << slot);
	}
	owners->plan = debug_plan_merge(&owners->guest, host, host_slots);
}

static void check_merge(const struct owners *owners)
{
	bool host = false;

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++) {
		enum owner owner = owners->slots[slot];
		struct breakpoint found =
			dr7_breakpoint(owners->plan.dr7, slot, owners->plan.address[slot]);

		CHECK_EQUAL(owners->plan.host >> slot & 1,
			    owner == HOST_EXECUTE || owner == HOST_WRITE);
		CHECK_EQUAL(owners->plan.guest >> slot & 1,
			    owner == GUEST_EXECUTE || owner == GUEST_WRITE);
		CHECK_EQUAL(dr7_slots(owners->plan.dr7) >> slot & 1, owner != NOBODY);
		host |= owner == HOST_EXECUTE || owner == HOST_WRITE;
		if (owner == NOBODY)
			continue;
		CHECK_EQUAL(found.kind, owner == HOST_WRITE || owner == GUEST_WRITE
						? BREAKPOINT_WRITE
						: BREAKPOINT_EXECUTE);
		CHECK_EQUAL(found.address, found.kind == BREAKPOINT_WRITE ? WRITTEN : EXECUTED);
	}
	CHECK_EQUAL((owners->plan.dr7 & DR7_GD) != 0, host);
}

/* The expected result of each single cause, slot by slot. */
struct wanted {
	uint8_t host_writes, host_executes;
	uint64_t guest_traps, guest_faults;
	bool executed, guest_executes, own_detect;
};

static struct wanted wanted_by_slots(const struct owners *owners, const struct debug_exit *exit)
{
	struct wanted wanted = { 0 };

	for (unsigned int slot = 0; slot < DEBUG_SLOTS; slot++) {
		uint8_t bit = (uint8_t)(1 << slot);

		if (!(exit->dr6 & bit))
			continue;
		switch (owners->slots[slot]) {
		case HOST_EXECUTE:
			wanted.host_executes |= bit;
			break;
		case HOST_WRITE:
			wanted.host_writes |= bit;
			break;
		case GUEST_EXECUTE:
			wanted.guest_faults |= bit;
			wanted.guest_executes = true;
			break;
		case GUEST_WRITE:
			wanted.guest_traps |= bit;
			break;
		default:
			break;
		}
		wanted.executed |=
			owners->slots[slot] == HOST_EXECUTE || owners->slots[slot] == GUEST_EXECUTE;
	}
	return wanted;
}

static struct wanted wanted_by(const struct owners *owners, const struct debug_exit *exit)
{
	struct wanted wanted = wanted_by_slots(owners, exit);

	/* 18.3.1.1: RF suppresses execute breakpoints; one that is reported nevertheless came
	 * before. */
	if (exit->rflags & RFLAGS_RF) {
		wanted.host_executes = 0;
		wanted.guest_faults = 0;
	}
	/* 18.3.1.4: the trap of TF belongs to the guest, unless the host steps and the guest
	 * does not. */
	if (exit->dr6 & DR6_BS && (exit->guest_steps || !exit->stepping))
		wanted.guest_traps |= DR6_BS;
	/* 18.3.1.3: general detect is a fault. */
	if (exit->dr6 & DR6_BD && exit->guest_dr7 & DR7_GD)
		wanted.guest_faults |= DR6_BD;
	else if (exit->dr6 & DR6_BD)
		wanted.own_detect = owners->plan.host;
	return wanted;
}

static bool is_right(const struct owners *owners, const struct debug_exit *exit)
{
	struct debug_verdict verdict = debug_classify(&owners->plan, exit);
	struct wanted wanted = wanted_by(owners, exit);
	uint64_t guest = wanted.guest_traps | wanted.guest_faults;
	/* 18.3.1.6: INT1 has no bit, and only a guest executes it. */
	bool unnamed = !(exit->dr6 & (0xf | DR6_BD | DR6_BS));
	/* After the guest's trap the instruction is retried: the host's breakpoint comes then,
	 * unless the guest's own breakpoint there makes its handler return with RF. */
	bool later = wanted.guest_traps && !wanted.guest_executes;
	uint8_t hits = wanted.host_writes | (later ? 0 : wanted.host_executes);

	bool step = !guest && !unnamed && (wanted.executed || wanted.own_detect);

	return verdict.host_hits == hits && verdict.guest_dr6 == guest &&
	       verdict.guest == (guest || unnamed) && verdict.step == step &&
	       /* 18.3.1.1: RF skips breakpoints, but not general detect; it is tried once. */
	       verdict.resume == (step && !wanted.own_detect && !(exit->rflags & RFLAGS_RF)) &&
	       verdict.step_done == (exit->stepping && exit->dr6 & DR6_BS);
}

static void check_exits(const struct owners *owners)
{
	for (unsigned int i = 0; i < 1u << 10; i++) {
		struct debug_exit exit = {
			.dr6 = DR6_NOTHING | (i & 0xf) | (i & 0x10 ? DR6_BS : 0) |
			       (i & 0x20 ? DR6_BD : 0),
			.rip = EXECUTED,
			.rflags = 2 | (i & 0x40 ? RFLAGS_RF : 0),
			.guest_dr7 = owners->guest.dr7 | (i & 0x80 ? DR7_GD : 0),
			.stepping = i & 0x100,
			.guest_steps = i & 0x200,
		};

		if (!is_right(owners, &exit))
			FAIL_TEST("slots %d %d %d %d: dr6 %#llx rflags %#llx guest's dr7 %#llx%s%s",
				  owners->slots[0], owners->slots[1], owners->slots[2],
				  owners->slots[3], (unsigned long long)exit.dr6,
				  (unsigned long long)exit.rflags,
				  (unsigned long long)exit.guest_dr7,
				  exit.stepping ? " stepping" : "",
				  exit.guest_steps ? " guest steps" : "");
	}
}

TEST(debug_registers, every_combination_of_owners_and_causes)
{
	struct owners owners;

	for (unsigned int number = 0; number < OWNERS * OWNERS * OWNERS * OWNERS; number++) {
		set_owners(&owners, number);
		check_merge(&owners);
		check_exits(&owners);
	}
}

TEST(debug_registers, bits_of_disabled_slots_have_no_owner)
{
	/* 18.2.3: B0 to B3 may be set for a condition that DR7 does not enable. */
	struct debug_plan plan = { .dr7 = DR7_FIXED };
	struct debug_exit exit = { .dr6 = DR6_NOTHING | 0xf };
	struct debug_verdict verdict = debug_classify(&plan, &exit);

	CHECK(!verdict.guest && !verdict.host_hits && !verdict.step);
}

TEST(debug_registers, unnamed_causes_are_the_guest_s)
{
	struct debug_plan plan = { .dr7 = DR7_FIXED };
	struct debug_registers guest = { .dr6 = DR6_NOTHING, .dr7 = DR7_FIXED };
	/* INT1, 18.3.1.6; a bus lock, 18.3.1.7: DR6.BLD is 0. */
	struct debug_verdict int1 =
		debug_classify(&plan, &(struct debug_exit){ .dr6 = DR6_NOTHING });
	struct debug_verdict lock =
		debug_classify(&plan, &(struct debug_exit){ .dr6 = DR6_NOTHING & ~DR6_BLD });

	CHECK(int1.guest && lock.guest);
	CHECK_EQUAL(debug_after_guest_exception(&guest, &int1).dr6, DR6_NOTHING);
	CHECK_EQUAL(debug_after_guest_exception(&guest, &lock).dr6, DR6_NOTHING & ~DR6_BLD);
}

TEST(debug_registers, guest_finds_its_bits_as_the_processor_leaves_them)
{
	/* 18.2.3: B0 to B3 are those of this exception, the others stay until software clears them.
	 */
	struct debug_registers guest = { .dr6 = DR6_NOTHING | DR6_BS | 0x8,
					 .dr7 = DR7_FIXED | DR7_GD | 0x3 };
	struct debug_verdict verdict = { .guest = true, .guest_dr6 = 0x1 | DR6_BD };
	struct debug_registers after = debug_after_guest_exception(&guest, &verdict);

	CHECK_EQUAL(after.dr6, DR6_NOTHING | DR6_BS | DR6_BD | 0x1);
	/* 18.2.4: GD is cleared at the handler's entry, so that it may use the registers. */
	CHECK_EQUAL(after.dr7, DR7_FIXED | 0x3);
}

TEST(debug_registers, step_runs_the_instruction_and_keeps_the_rest)
{
	struct debug_registers guest = { .address = { EXECUTED }, .dr7 = DR7_FIXED | 0x1 };
	struct breakpoint host[DEBUG_SLOTS] = { [1] = { EXECUTED, BREAKPOINT_EXECUTE, 1 },
						[2] = { EXECUTED + 1, BREAKPOINT_EXECUTE, 1 },
						[3] = { EXECUTED, BREAKPOINT_WRITE, 4 } };
	struct debug_plan plan = debug_plan_merge(&guest, host, 0xe), step;

	step = debug_plan_for_step(&plan, EXECUTED, guest.dr7);
	CHECK_EQUAL(dr7_slots(step.dr7), 0xc);
	CHECK_EQUAL(step.host, 0xc);
	CHECK_EQUAL(step.guest, 0);
	CHECK_EQUAL(step.dr7 & DR7_GD, 0);
	step = debug_plan_for_step(&plan, EXECUTED, guest.dr7 | DR7_GD);
	CHECK_EQUAL(step.dr7 & DR7_GD, DR7_GD);
}

TEST(debug_registers, host_gets_a_slot_that_both_use)
{
	struct debug_registers guest = { .address = { 0x3000, 0x3008 },
					 .dr7 = DR7_FIXED | 0x5 | 0xdd0000 };
	struct breakpoint host[DEBUG_SLOTS] = { { WRITTEN, BREAKPOINT_WRITE, 8 } };
	struct debug_plan plan = debug_plan_merge(&guest, host, 0x1);

	CHECK_EQUAL(plan.host, 0x1);
	CHECK_EQUAL(plan.guest, 0x2);
	CHECK_EQUAL(plan.address[0], WRITTEN);
	CHECK_EQUAL(plan.address[1], 0x3008);
	CHECK_EQUAL(dr7_breakpoint(plan.dr7, 0, 0).length, 8);
	CHECK_EQUAL(dr7_breakpoint(plan.dr7, 1, 0).length, 4);
}
