/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/search_pace.h"

#include "tests/unit/shim/test.h"

#define MILLISECOND 1000000ull
#define SECOND      (1000 * MILLISECOND)
#define KERNEL_CODE 0xffffffff81000000ull

/* In 64-bit mode, by the page tables at CR3. */
static struct guest_registers stop(uint64_t cr3, uint64_t rip)
{
	return (struct guest_registers){ .rip = rip, .paging = { .cr3 = cr3, .efer = 1 << 10 } };
}

/* Searches for so long, each time that it is due, where each takes WORK; how often. */
static unsigned int search(struct search_pace *pace, const struct guest_registers *registers,
			   uint64_t *now, uint64_t lasting, uint64_t work)
{
	unsigned int count = 0;

	for (uint64_t end = *now + lasting; *now < end; *now += MILLISECOND)
		if (search_pace_is_due(pace, registers, *now)) {
			search_pace_searched(pace, registers, *now, work);
			count++;
		}
	return count;
}

TEST(search_pace, a_guest_that_stays_the_same_is_searched_at_growing_intervals)
{
	struct guest_registers registers = stop(0x1000, 0x100000);
	struct search_pace pace = { 0 };
	uint64_t now = 7;

	CHECK(search_pace_is_due(&pace, &registers, now));
	CHECK(search(&pace, &registers, &now, SECOND, MILLISECOND) >= 7);
	CHECK(search_pace_is_slow(&pace));
	search(&pace, &registers, &now, 60 * SECOND, MILLISECOND);
	CHECK(search(&pace, &registers, &now, 60 * SECOND, MILLISECOND) <= 12);
	registers.rip += 0x1234; /* it need not stand still for that */
	CHECK(search(&pace, &registers, &now, 60 * SECOND, MILLISECOND) <= 12);
}

TEST(search_pace, one_that_changes_is_searched_at_once)
{
	struct guest_registers firmware = stop(0x1000, 0x100000), changed[3];
	uint64_t now = 7;

	changed[0] = stop(0x2000, 0x100000);
	changed[1] = stop(0x1000, KERNEL_CODE);
	changed[2] = firmware;
	changed[2].idt_base = KERNEL_CODE;
	for (int i = 0; i < 3; i++) {
		struct search_pace pace = { 0 };

		search(&pace, &firmware, &now, 60 * SECOND, MILLISECOND);
		search_pace_searched(&pace, &firmware, now, MILLISECOND);
		now += SEARCH_PAUSE_CHANGED;
		CHECK(!search_pace_is_due(&pace, &firmware, now));
		CHECK(search_pace_is_due(&pace, &changed[i], now));
	}
}

/* Where there is no 64-bit mode there is no kernel: nothing of it is a change. */
TEST(search_pace, code_of_other_modes_is_all_the_same)
{
	struct guest_registers first = { .rip = 0xfff0 },
			       other = { .rip = 0x7c00, .idt_base = 0x400 };
	struct search_pace pace = { 0 };
	uint64_t now = 7;

	search(&pace, &first, &now, 60 * SECOND, 0);
	search_pace_searched(&pace, &first, now, 0);
	CHECK(!search_pace_is_due(&pace, &other, now + SEARCH_PAUSE_CHANGED));
}

/* Its kernel is found and lost without end: all of it takes its part and no more. */
TEST(search_pace, repeated_losses_of_the_kernel_stay_within_the_budget)
{
	const struct guest_registers registers = stop(0x1000, KERNEL_CODE);
	const uint64_t work = 100 * MILLISECOND, hour = 3600 * SECOND;
	struct search_pace pace = { 0 };
	uint64_t now = 7, worked = 0;

	for (uint64_t end = now + hour; now < end; now += 10 * MILLISECOND)
		if (search_pace_is_due(&pace, &registers, now)) {
			search_pace_searched(&pace, &registers, now, work);
			search_pace_reset(&pace);
			worked += work;
		}
	CHECK(worked <= CPU_BUDGET_MAX + hour / CPU_BUDGET_SHARE + work);
	CHECK(worked >= hour / CPU_BUDGET_SHARE / 2);
}

/* As where the guest does a kexec soon after its boot, on a host where a search takes long. */
TEST(search_pace, a_lost_kernel_is_searched_at_once)
{
	const struct guest_registers registers = stop(0x1000, KERNEL_CODE);
	struct search_pace pace = { 0 };
	uint64_t now = 7;

	CHECK_EQUAL(search(&pace, &registers, &now, 5 * SECOND, 1500 * MILLISECOND), 1);
	CHECK(!search_pace_allows(&pace, now));
	search_pace_reset(&pace);
	CHECK(!search_pace_is_slow(&pace));
	CHECK(search_pace_is_due(&pace, &registers, now));
	CHECK(search(&pace, &registers, &now, SECOND, 200 * MILLISECOND) >= 5);
}

/* As for a system with processes that is not Linux, where every search is slow. */
TEST(search_pace, searches_stay_within_their_budget_after_the_start)
{
	const uint64_t work = 100 * MILLISECOND, hour = 3600 * SECOND;
	struct search_pace pace = { 0 };
	uint64_t now = 7, worked = 0, early = 0;

	for (uint64_t end = now + hour, cr3 = 0x1000; now < end;
	     now += 10 * MILLISECOND, cr3 += 0x1000) {
		struct guest_registers registers = stop(cr3, KERNEL_CODE);

		if (search_pace_is_due(&pace, &registers, now)) {
			search_pace_searched(&pace, &registers, now, work);
			worked += work;
			early += now < SECOND;
		}
	}
	CHECK(early >= 5); /* where a guest has just begun it does not rest */
	CHECK(worked <= CPU_BUDGET_START + hour / CPU_BUDGET_SHARE + work);
	CHECK(worked >= hour / CPU_BUDGET_SHARE / 2);
}
