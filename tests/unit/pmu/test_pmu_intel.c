/* SPDX-License-Identifier: Apache-2.0 */
/* Section numbers are those of the Intel SDM vol. 3B chapter 20. Sections that move between
 * editions are named by title. */
#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "tests/unit/pmu_registers.h"

#define SECOND UINT64_C(1000000000)
#define WIDTH  UINT64_C(0xffffffffffff)

#define MSR_PMC0         0xc1
#define MSR_SELECT0      0x186
#define MSR_FIXED0       0x309
#define MSR_CAPABILITIES 0x345
#define MSR_FIXED_CTRL   0x38d
#define MSR_STATUS       0x38e
#define MSR_GLOBAL       0x38f
#define MSR_OVF          0x390
#define MSR_A_PMC0       0x4c1

#define CORE_CYCLES UINT64_C(0x43003c) /* EN, OS, USR */
#define BUS_CYCLES  UINT64_C(0x43013c)
#define INTERRUPT   UINT64_C(0x100000)
#define ALL_GLOBAL  UINT64_C(0x70000000f)

static struct {
	unsigned int times;
	unsigned int ends; /* no further reports */
	char last[128];
} reported;

static void remember(void *context, const char *event)
{
	if (!event) {
		reported.ends++;
		return;
	}
	reported.times++;
	(void)snprintf(reported.last, sizeof(reported.last), "%s", event);
}

static struct pmu intel(void)
{
	struct pmu pmu;

	memset(&reported, 0, sizeof(reported));
	CHECK_EQUAL(pmu_init(&pmu, PMU_INTEL, &clock_rates, remember, NULL), 0);
	return pmu;
}

TEST(pmu_intel, registers_accept_the_values_of_the_manual_and_fault_otherwise)
{
	static const struct {
		const char *section;
		uint32_t msr;
		uint64_t written;
		bool faults;
		uint64_t read;
	} cases[] = {
		{ "20.2.1.1", MSR_SELECT0, 0xffdfffff, false, 0xffdfffff },
		{ "20.2.1.1, AnyThread is of version 3", MSR_SELECT0, 0x200000, true, 0 },
		{ "20.2.1.1, 63:32 reserved", MSR_SELECT0, UINT64_C(1) << 32, true, 0 },
		{ "20.2.1.1, 63:32 reserved", MSR_SELECT0 + 3, UINT64_C(1) << 63, true, 0 },
		{ "20.2.2", MSR_FIXED_CTRL, 0xbbb, false, 0xbbb },
		{ "20.2.2, AnyThread", MSR_FIXED_CTRL, 0x004, true, 0 },
		{ "20.2.2, AnyThread", MSR_FIXED_CTRL, 0x400, true, 0 },
		{ "20.2.2, no fourth counter", MSR_FIXED_CTRL, 0x1000, true, 0 },
		{ "20.2.2", MSR_GLOBAL, ALL_GLOBAL, false, ALL_GLOBAL },
		{ "20.2.2, no fifth counter", MSR_GLOBAL, 0x10, true, 0xf },
		{ "20.2.2, no fourth one", MSR_GLOBAL, UINT64_C(1) << 35, true, 0xf },
		{ "20.2.2, read-only", MSR_STATUS, 0, true, 0 },
		{ "20.2.2", MSR_OVF, ALL_GLOBAL | UINT64_C(3) << 62, false, 0 },
		{ "20.2.2", MSR_OVF, UINT64_C(1) << 61, true, 0 },
		{ "20.2.2", MSR_OVF, 0x10, true, 0 },
		{ "vol. 4, read-only", MSR_CAPABILITIES, 0x2000, true, 0x2000 },
		{ "20.2.2", MSR_FIXED0, WIDTH, false, WIDTH },
		{ "20.2.2, beyond the width", MSR_FIXED0 + 2, WIDTH + 1, true, 0 },
		{ "Full-Width Writes", MSR_A_PMC0 + 3, WIDTH, false, WIDTH },
		{ "Full-Width Writes, beyond the width", MSR_A_PMC0, WIDTH + 1, true, 0 },
		{ "Full-Width Writes, legacy", MSR_PMC0, 0x7fffffff, false, 0x7fffffff },
		{ "Full-Width Writes, legacy, sign", MSR_PMC0, 0x80000000, false, 0xffff80000000 },
		{ "Full-Width Writes, legacy, EDX", MSR_PMC0 + 3, 0x1234567800000001, false, 1 },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct pmu pmu = intel();
		bool written = pmu_write_msr(&pmu, cases[i].msr, cases[i].written);

		if (written == cases[i].faults || get(&pmu, cases[i].msr) != cases[i].read)
			FAIL_TEST("%s: MSR %#x after %#llx: %s, %#llx", cases[i].section,
				  cases[i].msr, (unsigned long long)cases[i].written,
				  written ? "taken" : "#GP",
				  (unsigned long long)get(&pmu, cases[i].msr));
	}
}

TEST(pmu_intel, there_are_no_other_registers)
{
	static const uint32_t beside[] = { 0xc0,  0xc5,       0x185,      0x18a, 0x308, 0x30c,
					   0x344, 0x346,      0x38c,      0x391, 0x4c0, 0x4c5,
					   0x1d9, 0xc0010000, 0xc0010200, 0 };
	struct pmu pmu = intel();
	uint64_t value;

	for (size_t i = 0; i < COUNT(beside); i++) {
		CHECK(!pmu_read_msr(&pmu, beside[i], &value));
		CHECK(!pmu_write_msr(&pmu, beside[i], 0));
	}
}

TEST(pmu_intel, linux_finds_its_hardware)
{
	/* Linux, arch/x86/events/core.c, check_hw_exists(): selects are 0 or disabled, and a
	 * counter keeps the written value. */
	static const uint32_t counters[] = { MSR_PMC0, MSR_PMC0 + 3, MSR_A_PMC0, MSR_A_PMC0 + 3,
					     MSR_FIXED0 };
	struct pmu pmu = intel();

	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQUAL(get(&pmu, MSR_SELECT0 + i), 0);
	CHECK_EQUAL(get(&pmu, MSR_FIXED_CTRL), 0);
	for (size_t i = 0; i < COUNT(counters); i++) {
		const uint64_t value = get(&pmu, counters[i]) ^ 0xffff;

		set(&pmu, counters[i], value);
		CHECK_EQUAL(get(&pmu, counters[i]), value);
	}
}

TEST(pmu_intel, cpuid_describes_the_pmu)
{
	static const uint32_t empty[] = { 0x14, 0x1c, 0x23 };
	const struct pmu pmu = intel();
	uint32_t basic[4] = { 1, 2, 1u << 2 | 1u << 4, 1u << 21 }, leaf[4] = { ~0u, ~0u, ~0u, ~0u },
		 other[4] = { 9, 9, 9, 9 }, features[4] = { ~0u, ~0u, ~0u, ~0u };

	/* 20.2.1.1: version 2, 4 counters of 48 bits, 7 events; bits of EBX: table 20-1. 20.2.2:
	 * EDX. */
	pmu_cpuid(&pmu, 0xa, 0, leaf);
	CHECK_EQUAL(leaf[0], 0x07300402);
	CHECK_EQUAL(leaf[1], 0x7a); /* there are core cycles (bit 0) and bus cycles (bit 2) */
	CHECK_EQUAL(leaf[2], 0);
	CHECK_EQUAL(leaf[3], 0x603);
	/* Vol. 2A, CPUID leaf 1: PDCM (ECX 15); no DTES64 (ECX 2), DS-CPL (ECX 4), DS (EDX 21). */
	pmu_cpuid(&pmu, 1, 0, basic);
	CHECK(basic[0] == 1 && basic[1] == 2 && basic[2] == 1u << 15 && basic[3] == 0);
	/* Leaf 7: no processor trace (EBX 25) nor LBR (EDX 19) in subleaf 0, no ArchPerfmonExt (EAX
	 * 8) in 1.
	 */
	pmu_cpuid(&pmu, 7, 0, features);
	CHECK(features[0] == ~0u && features[1] == ~(1u << 25) && features[2] == ~0u);
	CHECK_EQUAL(features[3], ~(1u << 19));
	pmu_cpuid(&pmu, 7, 1, features);
	CHECK_EQUAL(features[0], ~(1u << 8));
	for (size_t i = 0; i < COUNT(empty); i++) {
		uint32_t all[4] = { ~0u, ~0u, ~0u, ~0u };

		pmu_cpuid(&pmu, empty[i], 0, all);
		CHECK(all[0] == 0 && all[1] == 0 && all[2] == 0 && all[3] == 0);
	}
	pmu_cpuid(&pmu, 2, 0, other);
	CHECK(other[0] == 9 && other[1] == 9 && other[2] == 9 && other[3] == 9);
}

TEST(pmu_intel, rdpmc_reads_by_index)
{
	/* RDPMC, vol. 2B */
	static const uint32_t faulting[] = { 4,          0x3fffffff, 0x40000003,
					     0x20000000, 0x80000000, 0xc0000000 };
	struct pmu pmu = intel();
	uint64_t value;

	for (uint32_t i = 0; i < 4; i++)
		set(&pmu, MSR_A_PMC0 + i, WIDTH - i);
	for (uint32_t i = 0; i < 3; i++)
		set(&pmu, MSR_FIXED0 + i, 100 + i);
	for (uint32_t i = 0; i < 4; i++) {
		CHECK(pmu_read_counter(&pmu, i, &value));
		CHECK_EQUAL(value, WIDTH - i);
	}
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(pmu_read_counter(&pmu, 0x40000000 + i, &value));
		CHECK_EQUAL(value, 100 + i);
	}
	for (size_t i = 0; i < COUNT(faulting); i++)
		CHECK(!pmu_read_counter(&pmu, faulting[i], &value));
}

TEST(pmu_intel, cycles_are_counted_and_nothing_else)
{
	/* Counts of a general counter in one second, and its reports. */
	static const struct {
		const char *section;
		uint64_t select, counted;
		const char *reported;
	} cases[] = {
		{ "table 20-1", CORE_CYCLES, 3000000000, "" },
		{ "table 20-1", BUS_CYCLES, 25000000, "" },
		{ "20.2.1.1, INT", CORE_CYCLES | INTERRUPT, 3000000000, "" },
		{ "20.2.1.1, EN", CORE_CYCLES & ~UINT64_C(0x400000), 0, "" },
		{ "20.2.1.1, neither OS nor USR", 0x40003c, 0, "" },
		{ "20.2.1.1, USR", 0x41003c, 0,
		  "event 0x3c umask 0x00 (core cycles), user mode only" },
		{ "20.2.1.1, OS", 0x42003c, 0,
		  "event 0x3c umask 0x00 (core cycles), kernel mode only" },
		{ "20.2.1.1, E", 0x47003c, 0,
		  "event 0x3c umask 0x00 (core cycles), with EDGE, INV or CMASK" },
		{ "20.2.1.1, INV, CMASK", 0x10c3003c, 0,
		  "event 0x3c umask 0x00 (core cycles), with EDGE, INV or CMASK" },
		{ "table 20-1", 0x4300c0, 0, "event 0xc0 umask 0x00 (instructions)" },
		{ "table 20-1", 0x43412e, 0, "event 0x2e umask 0x41 (last level cache misses)" },
		{ "model specific", 0x4302d1, 0, "event 0xd1 umask 0x02 (unknown)" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct pmu pmu = intel();

		set(&pmu, MSR_SELECT0 + 1, cases[i].select);
		CHECK(!pmu_advance(&pmu, SECOND));
		if (get(&pmu, MSR_PMC0 + 1) != cases[i].counted ||
		    strcmp(reported.last, cases[i].reported) != 0)
			FAIL_TEST("%s: %#llx counted %llu; reported: %s", cases[i].section,
				  (unsigned long long)cases[i].select,
				  (unsigned long long)get(&pmu, MSR_PMC0 + 1), reported.last);
	}
}

TEST(pmu_intel, fixed_counters_count_cycles_at_all_levels)
{
	/* 20.2.2, table 20-2: instructions, core cycles, reference cycles; fields 0, OS, USR, all.
	 */
	static const uint64_t counted[] = { 0, 3000000000, 2000000000 };

	for (unsigned int field = 0; field < 4; field++) {
		struct pmu pmu = intel();

		set(&pmu, MSR_FIXED_CTRL, field * 0x111);
		set(&pmu, MSR_GLOBAL, ALL_GLOBAL);
		(void)pmu_advance(&pmu, SECOND);
		for (uint32_t i = 0; i < 3; i++)
			CHECK_EQUAL(get(&pmu, MSR_FIXED0 + i), field == 3 ? counted[i] : 0);
		CHECK_EQUAL(reported.times, field == 0 ? 0 : field == 3 ? 1 : 3);
	}
}

TEST(pmu_intel, an_event_is_reported_once)
{
	struct pmu pmu = intel();

	for (uint32_t i = 0; i < 4; i++) {
		set(&pmu, MSR_SELECT0 + i, 0x4300c0);
		set(&pmu, MSR_SELECT0 + i, 0x5300c0);
		set(&pmu, MSR_SELECT0 + i, 0);
	}
	CHECK_EQUAL(reported.times, 1);
	for (uint64_t mask = 1; mask < 256; mask++)
		set(&pmu, MSR_SELECT0, 0x43003c | mask << 24);
	CHECK_EQUAL(reported.times, 2); /* the name does not include the CMASK */
	CHECK_STRING(reported.last, "event 0x3c umask 0x00 (core cycles), with EDGE, INV or CMASK");
	CHECK_EQUAL(reported.ends, 0);
	for (uint64_t event = 0; event < 0x3c; event++)
		set(&pmu, MSR_SELECT0, 0x430000 | event);
	CHECK_EQUAL(reported.times, PMU_REPORTED_MAX);
	CHECK_EQUAL(reported.ends, 1);
}

TEST(pmu_intel, an_event_is_reported_once_for_all_vcpus)
{
	struct pmu first = intel(), other = intel();

	pmu_share_reports(&other, &first);
	set(&other, MSR_SELECT0, 0x4300c0);
	set(&first, MSR_SELECT0, 0x4300c0);
	CHECK_EQUAL(reported.times, 1);
	set(&first, MSR_SELECT0, 0x4300c4);
	set(&other, MSR_SELECT0 + 1, 0x4300c4);
	CHECK_EQUAL(reported.times, 2);
}

TEST(pmu_intel, global_control_switches_each_counter)
{
	/* 20.2.2: a counter counts while its own enable and its bit in IA32_PERF_GLOBAL_CTRL are
	 * set. */
	for (unsigned int bit = 0; bit < 7; bit++) {
		struct pmu pmu = intel();

		for (uint32_t i = 0; i < 4; i++)
			set(&pmu, MSR_SELECT0 + i, CORE_CYCLES);
		set(&pmu, MSR_FIXED_CTRL, 0x333);
		set(&pmu, MSR_GLOBAL, UINT64_C(1) << (bit < 4 ? bit : 32 + bit - 4));
		(void)pmu_advance(&pmu, SECOND);
		for (uint32_t i = 0; i < 4; i++)
			CHECK_EQUAL(get(&pmu, MSR_PMC0 + i), i == bit ? 3000000000 : 0);
		for (uint32_t i = 0; i < 3; i++)
			CHECK_EQUAL(get(&pmu, MSR_FIXED0 + i), i + 4 != bit ? 0
							       : i == 1     ? 3000000000
							       : i == 2     ? 2000000000
									    : 0);
	}
}

TEST(pmu_intel, a_wrap_sets_its_status_bit_and_makes_the_requested_PMI)
{
	/* 20.2.2: status bits by counter; 20.2.1.1: INT; IA32_FIXED_CTR_CTRL: PMI. */
	static const struct {
		uint32_t counter, control;
		uint64_t quiet, loud, status;
	} cases[] = {
		{ MSR_A_PMC0, MSR_SELECT0, CORE_CYCLES, CORE_CYCLES | INTERRUPT, 1 },
		{ MSR_A_PMC0 + 3, MSR_SELECT0 + 3, CORE_CYCLES, CORE_CYCLES | INTERRUPT, 8 },
		{ MSR_FIXED0 + 1, MSR_FIXED_CTRL, 0x030, 0x0b0, UINT64_C(1) << 33 },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		for (unsigned int interrupt = 0; interrupt < 2; interrupt++) {
			struct pmu pmu = intel();

			set(&pmu, MSR_GLOBAL, ALL_GLOBAL);
			set(&pmu, cases[i].counter, WIDTH + 1 - 3000);
			set(&pmu, cases[i].control, interrupt ? cases[i].loud : cases[i].quiet);
			CHECK_EQUAL(pmu_next_overflow(&pmu), interrupt ? 1000 : PMU_NEVER);
			CHECK(!pmu_advance(&pmu, 999));
			CHECK_EQUAL(get(&pmu, cases[i].counter), WIDTH - 2);
			CHECK_EQUAL(get(&pmu, MSR_STATUS), 0);
			CHECK_EQUAL(pmu_advance(&pmu, 1000), interrupt);
			CHECK_EQUAL(get(&pmu, cases[i].counter), 0);
			CHECK_EQUAL(get(&pmu, MSR_STATUS), cases[i].status);
			CHECK(!pmu_advance(&pmu, 2000));
			CHECK_EQUAL(get(&pmu, cases[i].counter), 3000);
			CHECK_EQUAL(get(&pmu, MSR_STATUS), cases[i].status);
			set(&pmu, MSR_OVF, ~cases[i].status & ALL_GLOBAL);
			CHECK_EQUAL(get(&pmu, MSR_STATUS), cases[i].status);
			set(&pmu, MSR_OVF, cases[i].status);
			CHECK_EQUAL(get(&pmu, MSR_STATUS), 0);
		}
}

TEST(pmu_intel, a_PMI_freezes_all_counters_at_its_time)
{
	/* "Freezing LBR and Performance Counters on PMI", legacy: IA32_PERF_GLOBAL_CTRL is cleared.
	 */
	struct pmu pmu = intel();

	pmu_set_freeze_on_pmi(&pmu, true);
	set(&pmu, MSR_GLOBAL, ALL_GLOBAL);
	set(&pmu, MSR_SELECT0, CORE_CYCLES | INTERRUPT);
	set(&pmu, MSR_A_PMC0, WIDTH + 1 - 3000);
	set(&pmu, MSR_FIXED_CTRL, 0x300);
	CHECK(pmu_advance(&pmu, 5000));
	CHECK_EQUAL(get(&pmu, MSR_GLOBAL), 0);
	CHECK_EQUAL(get(&pmu, MSR_STATUS), 1);
	CHECK_EQUAL(get(&pmu, MSR_PMC0), 0);
	CHECK_EQUAL(get(&pmu, MSR_FIXED0 + 2), 2000);
	CHECK_EQUAL(pmu_next_overflow(&pmu), PMU_NEVER);
	CHECK(!pmu_advance(&pmu, 6000));
	CHECK_EQUAL(get(&pmu, MSR_FIXED0 + 2), 2000);
	set(&pmu, MSR_GLOBAL, ALL_GLOBAL);
	CHECK(!pmu_advance(&pmu, 7000));
	CHECK_EQUAL(get(&pmu, MSR_PMC0), 3000);
	CHECK_EQUAL(get(&pmu, MSR_FIXED0 + 2), 4000);
}

TEST(pmu_intel, an_overflow_without_PMI_freezes_nothing)
{
	struct pmu pmu = intel();

	pmu_set_freeze_on_pmi(&pmu, true);
	set(&pmu, MSR_SELECT0, CORE_CYCLES);
	set(&pmu, MSR_A_PMC0, WIDTH);
	CHECK(!pmu_advance(&pmu, SECOND));
	CHECK_EQUAL(get(&pmu, MSR_STATUS), 1);
	CHECK_EQUAL(get(&pmu, MSR_PMC0), 3000000000 - 1);
	CHECK_EQUAL(get(&pmu, MSR_GLOBAL), 0xf);
}

TEST(pmu_intel, small_steps_lose_no_cycle)
{
	static const struct pmu_clock odd = { 2999999999, 1234567, 99 };
	struct pmu pmu;

	CHECK_EQUAL(pmu_init(&pmu, PMU_INTEL, &odd, NULL, NULL), 0);
	set(&pmu, MSR_GLOBAL, ALL_GLOBAL);
	set(&pmu, MSR_SELECT0, CORE_CYCLES);
	set(&pmu, MSR_SELECT0 + 1, BUS_CYCLES);
	set(&pmu, MSR_FIXED_CTRL, 0x300);
	for (uint64_t time = 0; time <= SECOND; time += 10007)
		(void)pmu_advance(&pmu, time);
	(void)pmu_advance(&pmu, SECOND);
	CHECK_EQUAL(get(&pmu, MSR_PMC0), 2999999999);
	CHECK_EQUAL(get(&pmu, MSR_PMC0 + 1), 99);
	CHECK_EQUAL(get(&pmu, MSR_FIXED0 + 2), 1234567);
}

TEST(pmu_intel, the_next_overflow_is_the_first_ns_that_has_it)
{
	static const uint64_t rates[] = { 1, 99, 1234567, 1000000000, 2999999999, PMU_HZ_MAX };
	static const uint64_t starts[] = { 0, 1, 1000000007, UINT64_C(1) << 50 };

	for (size_t r = 0; r < COUNT(rates); r++)
		for (size_t s = 0; s < COUNT(starts); s++)
			for (uint64_t left = 1; left < 5000; left += 611) {
				struct pmu_clock rate = { rates[r], 1, 1 };
				struct pmu pmu, before;
				uint64_t time;

				REQUIRE_EQUAL(pmu_init(&pmu, PMU_INTEL, &rate, NULL, NULL), 0);
				(void)pmu_advance(&pmu, starts[s]);
				set(&pmu, MSR_A_PMC0, WIDTH + 1 - left);
				set(&pmu, MSR_SELECT0, CORE_CYCLES | INTERRUPT);
				time = pmu_next_overflow(&pmu);
				REQUIRE(time > starts[s] && time != PMU_NEVER);
				before = pmu;
				CHECK(!pmu_advance(&before, time - 1));
				CHECK(pmu_advance(&pmu, time));
			}
}

TEST(pmu_intel, a_reset_leaves_the_time)
{
	struct pmu pmu = intel();

	/* Vol. 3A table 10-1: the bits of the general counters are set after RESET. */
	CHECK_EQUAL(get(&pmu, MSR_GLOBAL), 0xf);
	set(&pmu, MSR_SELECT0, CORE_CYCLES);
	(void)pmu_advance(&pmu, SECOND);
	pmu_reset(&pmu);
	CHECK_EQUAL(get(&pmu, MSR_PMC0), 0);
	CHECK_EQUAL(get(&pmu, MSR_SELECT0), 0);
	CHECK_EQUAL(get(&pmu, MSR_GLOBAL), 0xf);
	CHECK_EQUAL(pmu.state.time, SECOND);
}

TEST(pmu_intel, frequencies_are_checked)
{
	static const struct pmu_clock wrong[] = {
		{ 0, 1, 1 }, { 1, 0, 1 }, { 1, 1, 0 }, { PMU_HZ_MAX + 1, 1, 1 }
	};
	struct pmu pmu;

	for (size_t i = 0; i < COUNT(wrong); i++)
		CHECK_EQUAL(pmu_init(&pmu, PMU_INTEL, &wrong[i], NULL, NULL), -EINVAL);
	CHECK_EQUAL(pmu_init(&pmu, (enum pmu_model)0, &clock_rates, NULL, NULL), -EINVAL);
	CHECK_STRING(error_message(), "guest PMU: unknown model 0");
}
