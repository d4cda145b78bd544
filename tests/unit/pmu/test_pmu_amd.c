/* SPDX-License-Identifier: Apache-2.0 */
/* Section numbers are those of the AMD APM, vol. 2 unless another volume is given. */
#include <stdio.h>

#include "tests/unit/pmu_registers.h"

#define SECOND UINT64_C(1000000000)
#define WIDTH  UINT64_C(0xffffffffffff)

#define LEGACY_SELECT0  0xc0010000
#define LEGACY_COUNTER0 0xc0010004
#define CORE_SELECT0    0xc0010200
#define CORE_COUNTER0   0xc0010201

#define CORE_CYCLES UINT64_C(0x430076) /* EN, OS, USR */
#define INTERRUPT   UINT64_C(0x100000)

static char reported[128];

static void remember(void *context, const char *event)
{
	(void)snprintf(reported, sizeof(reported), "%s", event);
}

static struct pmu amd(enum pmu_model model)
{
	struct pmu pmu;

	reported[0] = '\0';
	CHECK_EQUAL(pmu_init(&pmu, model, &clock_rates, remember, NULL), 0);
	return pmu;
}

TEST(pmu_amd, registers_ignore_reserved_bits)
{
	static const struct {
		const char *section;
		uint32_t msr;
		uint64_t written, read;
	} cases[] = {
		{ "13.2.1, PerfEvtSel", LEGACY_SELECT0, ~UINT64_C(0), 0xfffd7ffff },
		{ "13.2.1, PerfEvtSel", CORE_SELECT0 + 10, ~UINT64_C(0), 0xfffd7ffff },
		{ "13.2.1, PerfCtr", LEGACY_COUNTER0 + 3, ~UINT64_C(0), WIDTH },
		{ "13.2.1, PerfCtr", CORE_COUNTER0 + 10, ~UINT64_C(0), WIDTH },
		{ "13.2.1, PerfCtr, no sign extension", LEGACY_COUNTER0, 0x80000000, 0x80000000 },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct pmu pmu = amd(PMU_AMD_CORE);

		set(&pmu, cases[i].msr, cases[i].written);
		if (get(&pmu, cases[i].msr) != cases[i].read)
			FAIL_TEST("%s: MSR %#x after %#llx: %#llx", cases[i].section, cases[i].msr,
				  (unsigned long long)cases[i].written,
				  (unsigned long long)get(&pmu, cases[i].msr));
	}
}

TEST(pmu_amd, the_legacy_registers_are_the_first_four)
{
	struct pmu pmu = amd(PMU_AMD_CORE);

	for (uint32_t i = 0; i < 4; i++) {
		set(&pmu, LEGACY_SELECT0 + i, 0x10 + i);
		set(&pmu, LEGACY_COUNTER0 + i, 0x20 + i);
		CHECK_EQUAL(get(&pmu, CORE_SELECT0 + 2 * i), 0x10 + i);
		CHECK_EQUAL(get(&pmu, CORE_COUNTER0 + 2 * i), 0x20 + i);
		set(&pmu, CORE_SELECT0 + 2 * i, 0x30 + i);
		set(&pmu, CORE_COUNTER0 + 2 * i, 0x40 + i);
		CHECK_EQUAL(get(&pmu, LEGACY_SELECT0 + i), 0x30 + i);
		CHECK_EQUAL(get(&pmu, LEGACY_COUNTER0 + i), 0x40 + i);
	}
}

TEST(pmu_amd, there_are_no_other_registers)
{
	static const struct {
		enum pmu_model model;
		uint32_t msr;
	} beside[] = {
		{ PMU_AMD_CORE, 0xc000ffff },   { PMU_AMD_CORE, 0xc0010008 },
		{ PMU_AMD_CORE, 0xc00101ff },   { PMU_AMD_CORE, 0xc001020c },
		{ PMU_AMD_CORE, 0xc0010300 },   { PMU_AMD_CORE, 0x186 },
		{ PMU_AMD_CORE, 0x345 },        { PMU_AMD_CORE, 0x38f },
		{ PMU_AMD_LEGACY, 0xc0010200 }, { PMU_AMD_LEGACY, 0xc0010201 },
		{ PMU_AMD_LEGACY, 0xc001020b },
	};
	uint64_t value;

	for (size_t i = 0; i < COUNT(beside); i++) {
		struct pmu pmu = amd(beside[i].model);

		CHECK(!pmu_read_msr(&pmu, beside[i].msr, &value));
		CHECK(!pmu_write_msr(&pmu, beside[i].msr, 0));
	}
}

TEST(pmu_amd, linux_finds_its_hardware)
{
	/* Linux, arch/x86/events/core.c, check_hw_exists() */
	struct pmu pmu = amd(PMU_AMD_CORE);

	for (uint32_t i = 0; i < 6; i++) {
		const uint64_t value = get(&pmu, CORE_COUNTER0 + 2 * i) ^ 0xffff;

		CHECK_EQUAL(get(&pmu, CORE_SELECT0 + 2 * i), 0);
		set(&pmu, CORE_COUNTER0 + 2 * i, value);
		CHECK_EQUAL(get(&pmu, CORE_COUNTER0 + 2 * i), value);
	}
}

TEST(pmu_amd, cpuid_describes_the_pmu)
{
	static const uint32_t empty[] = { 0xa, 0x23, 0x8000001b, 0x80000022 };
	const struct pmu core = amd(PMU_AMD_CORE), legacy = amd(PMU_AMD_LEGACY);
	uint32_t leaf[4] = { ~0u, ~0u, ~0u, ~0u };

	/* Vol. 3 E.4.2: PerfCtrExtCore 23; without IBS 10, PerfCtrExtNB 24, PerfTsc 27,
	 * PerfCtrExtLLC 28 */
	pmu_cpuid(&core, 0x80000001, 0, leaf);
	CHECK(leaf[0] == ~0u && leaf[1] == ~0u && leaf[3] == ~0u);
	CHECK_EQUAL(leaf[2], ~(1u << 10 | 1u << 24 | 1u << 27 | 1u << 28));
	pmu_cpuid(&legacy, 0x80000001, 0, leaf);
	CHECK_EQUAL(leaf[2], ~(1u << 10 | 1u << 23 | 1u << 24 | 1u << 27 | 1u << 28));
	pmu_cpuid(&core, 0x80000001, 0, leaf);
	CHECK_EQUAL(leaf[2], ~(1u << 10 | 1u << 24 | 1u << 27 | 1u << 28));
	for (size_t i = 0; i < COUNT(empty); i++) {
		uint32_t all[4] = { ~0u, ~0u, ~0u, ~0u };

		pmu_cpuid(&core, empty[i], 0, all);
		CHECK(all[0] == 0 && all[1] == 0 && all[2] == 0 && all[3] == 0);
	}
}

TEST(pmu_amd, rdpmc_reads_by_index)
{
	/* RDPMC, vol. 3: northbridge counters from 6 on, cache counters from 10 on. */
	struct pmu core = amd(PMU_AMD_CORE), legacy = amd(PMU_AMD_LEGACY);
	uint64_t value;

	for (uint32_t i = 0; i < 6; i++)
		set(&core, CORE_COUNTER0 + 2 * i, 100 + i);
	for (uint32_t i = 0; i < 16; i++) {
		value = 0;
		CHECK_EQUAL(pmu_read_counter(&core, i, &value), i < 6);
		CHECK_EQUAL(value, i < 6 ? 100 + i : 0);
		CHECK_EQUAL(pmu_read_counter(&legacy, i, &value), i < 4);
	}
	CHECK(!pmu_read_counter(&core, 0x40000000, &value));
}

TEST(pmu_amd, cycles_are_counted_and_nothing_else)
{
	static const struct {
		const char *section;
		uint64_t select, counted;
		const char *reported;
	} cases[] = {
		{ "PMCx076", CORE_CYCLES, 3000000000, "" },
		{ "PMCx120", UINT64_C(0x100430120), 2000000000, "" },
		{ "13.2.1, EN", CORE_CYCLES & ~UINT64_C(0x400000), 0, "" },
		{ "13.2.1, USR", 0x410076, 0,
		  "event 0x76 umask 0x00 (core cycles), user mode only" },
		{ "13.2.1, CntMask", 0x1430076, 0,
		  "event 0x76 umask 0x00 (core cycles), with EDGE, INV or CMASK" },
		{ "PMCx0C0", 0x4300c0, 0, "event 0xc0 umask 0x00 (instructions)" },
		{ "PMCx064", 0x430964, 0, "event 0x64 umask 0x09 (L2 misses)" },
		{ "13.2.1, EventSelect[11:8]", UINT64_C(0xf00430076), 0,
		  "event 0xf76 umask 0x00 (unknown)" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct pmu pmu = amd(PMU_AMD_CORE);

		set(&pmu, CORE_SELECT0 + 10, cases[i].select);
		CHECK(!pmu_advance(&pmu, SECOND));
		if (get(&pmu, CORE_COUNTER0 + 10) != cases[i].counted ||
		    strcmp(reported, cases[i].reported) != 0)
			FAIL_TEST("%s: %#llx counted %llu; reported: %s", cases[i].section,
				  (unsigned long long)cases[i].select,
				  (unsigned long long)get(&pmu, CORE_COUNTER0 + 10), reported);
	}
}

TEST(pmu_amd, legacy_counters_have_no_reference_cycles)
{
	struct pmu pmu = amd(PMU_AMD_LEGACY);

	set(&pmu, LEGACY_SELECT0, UINT64_C(0x100430120));
	CHECK(!strcmp(reported, "event 0x120 umask 0x01 (reference cycles)"));
	CHECK(!pmu_is_counting(&pmu));
	CHECK(!pmu_advance(&pmu, SECOND));
	CHECK_EQUAL(get(&pmu, LEGACY_COUNTER0), 0);
	reported[0] = '\0';
	set(&pmu, LEGACY_SELECT0 + 1, UINT64_C(0x100430120));
	CHECK_EQUAL(reported[0], '\0'); /* once */
}

TEST(pmu_amd, the_events_of_Linux_have_names)
{
	/* Linux, arch/x86/events/amd/core.c: event maps of K7 to family 16h, of Zen 1, Zen 2 and
	 * Zen 4 */
	static const uint64_t configs[] = { 0x0076, 0x00c0, 0x077d, 0x077e,     0x00c2,
					    0x00c3, 0x00d0, 0x00d1, 0xff60,     0x0964,
					    0x0287, 0x0187, 0x00a9, 0x100000120 };

	for (size_t i = 0; i < COUNT(configs); i++) {
		struct pmu pmu = amd(PMU_AMD_CORE);

		set(&pmu, CORE_SELECT0, configs[i] | 0x410000 /* EN, USR */);
		CHECK(reported[0] != '\0');
		CHECK(!strstr(reported, "unknown"));
	}
}

TEST(pmu_amd, a_wrap_makes_the_requested_PMI)
{
	/* 13.2.1, INT; the counters continue, because AMD has no freezing. */
	for (unsigned int interrupt = 0; interrupt < 2; interrupt++) {
		struct pmu pmu = amd(PMU_AMD_LEGACY);

		pmu_set_freeze_on_pmi(&pmu, true);
		set(&pmu, LEGACY_COUNTER0 + 2, WIDTH + 1 - 3000);
		set(&pmu, LEGACY_SELECT0 + 2, CORE_CYCLES | (interrupt ? INTERRUPT : 0));
		CHECK_EQUAL(pmu_next_overflow(&pmu), interrupt ? 1000 : PMU_NEVER);
		CHECK(!pmu_advance(&pmu, 999));
		CHECK_EQUAL(get(&pmu, LEGACY_COUNTER0 + 2), WIDTH - 2);
		CHECK_EQUAL(pmu_advance(&pmu, 2000), interrupt);
		CHECK_EQUAL(get(&pmu, LEGACY_COUNTER0 + 2), 3000);
	}
}

TEST(pmu_amd, all_is_0_after_a_reset)
{
	struct pmu pmu = amd(PMU_AMD_CORE);

	for (uint32_t i = 0; i < 12; i++)
		set(&pmu, CORE_SELECT0 + i, CORE_CYCLES);
	pmu_reset(&pmu);
	for (uint32_t i = 0; i < 12; i++)
		CHECK_EQUAL(get(&pmu, CORE_SELECT0 + i), 0);
}
