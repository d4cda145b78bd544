/* SPDX-License-Identifier: Apache-2.0 */
/* A saved and restored PMU continues without a difference, and no file can create an impossible
 * one. */
#include <errno.h>
#include <stddef.h>

#include "tests/unit/pmu_registers.h"

static struct pmu fresh(enum pmu_model model)
{
	struct pmu pmu;

	CHECK_EQUAL(pmu_init(&pmu, model, &clock_rates, NULL, NULL), 0);
	return pmu;
}

/* One that has counted, with one overflow in the past and one in 1000 ns. */
static struct pmu used(enum pmu_model model)
{
	static const struct {
		uint32_t msr;
		uint64_t value;
	} intel[] = { { 0x4c1, 0xfffffffff000 }, { 0x186, 0x53003c }, { 0x38f, 0x70000000f },
		      { 0x38d, 0xbbb },          { 0x309, 77 },       { 0x4c2, 5 } },
	  amd[] = { { 0xc0010004, 0xfffffffff000 }, { 0xc0010000, 0x530076 } };
	struct pmu pmu = fresh(model);

	for (size_t i = 0; model == PMU_INTEL && i < COUNT(intel); i++)
		CHECK(pmu_write_msr(&pmu, intel[i].msr, intel[i].value));
	for (size_t i = 0; model != PMU_INTEL && i < COUNT(amd); i++)
		CHECK(pmu_write_msr(&pmu, amd[i].msr, amd[i].value));
	CHECK(pmu_advance(&pmu, 5000));
	CHECK(pmu_write_msr(&pmu, model == PMU_INTEL ? 0xc1 : 0xc0010004, (uint64_t)-3000));
	pmu_set_freeze_on_pmi(&pmu, true);
	return pmu;
}

TEST(pmu_restore, a_restored_pmu_continues)
{
	for (unsigned int model = PMU_INTEL; model <= PMU_AMD_CORE; model++) {
		struct pmu pmu = used((enum pmu_model)model),
			   restored = fresh((enum pmu_model)model);

		CHECK_EQUAL(pmu.state.size, sizeof(pmu.state));
		CHECK_EQUAL(offsetof(struct pmu_state, size), 0);
		REQUIRE_EQUAL(pmu_restore(&restored, &pmu.state, sizeof(pmu.state)), 0);
		CHECK_EQUAL(pmu_next_overflow(&restored), 6000);
		CHECK(pmu_advance(&pmu, 10000));
		CHECK(pmu_advance(&restored, 10000));
		CHECK_EQUAL(memcmp(&pmu.state, &restored.state, sizeof(pmu.state)), 0);
	}
}

struct damage {
	size_t offset;
	uint64_t value;
};

#define AT(field, wrong)                                                                           \
	{                                                                                          \
		offsetof(struct pmu_state, field), wrong                                           \
	}

static void check_refused(enum pmu_model model, const struct damage *damages, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pmu_state saved = used(model).state;
		struct pmu pmu = fresh(model);
		const struct pmu before = pmu;

		memcpy((uint8_t *)&saved + damages[i].offset, &damages[i].value,
		       sizeof(damages[i].value));
		if (pmu_restore(&pmu, &saved, sizeof(saved)) != -EINVAL)
			FAIL_TEST("model %d: %#llx at %zu was taken", (int)model,
				  (unsigned long long)damages[i].value, damages[i].offset);
		CHECK_EQUAL(memcmp(&pmu.state, &before.state, sizeof(pmu.state)), 0);
	}
}

TEST(pmu_restore, impossible_states_are_refused)
{
	static const struct damage intel[] = {
		AT(size, UINT64_C(1) << 32 | (sizeof(struct pmu_state) - 1)),
		AT(size, UINT64_C(2) << 32 | sizeof(struct pmu_state)),
		AT(size, sizeof(struct pmu_state)),
		AT(clock.core, 0),
		AT(clock.bus, PMU_HZ_MAX + 1),
		AT(time, PMU_NEVER),
		AT(select[0], 1u << 21),
		AT(select[4], 1),
		AT(general[3], UINT64_C(1) << 48),
		AT(general[5], 1),
		AT(fixed[2], UINT64_C(1) << 48),
		AT(fixed_control, 4),
		AT(global_control, 0x10),
		AT(global_status, 0x10),
		AT(freeze_on_pmi, 2),
	};
	static const struct damage amd[] = {
		AT(select[4], 1),     AT(general[4], 1),       AT(fixed[0], 1),
		AT(fixed_control, 1), AT(global_control, 1),   AT(global_status, 1),
		AT(freeze_on_pmi, 1), AT(select[0], 1u << 19),
	};

	check_refused(PMU_INTEL, intel, COUNT(intel));
	check_refused(PMU_AMD_LEGACY, amd, COUNT(amd));
}

TEST(pmu_restore, another_model_is_refused)
{
	for (unsigned int saved = PMU_INTEL; saved <= PMU_AMD_CORE; saved++)
		for (unsigned int model = PMU_INTEL; model <= PMU_AMD_CORE; model++) {
			struct pmu_state state = used((enum pmu_model)saved).state;
			struct pmu pmu = fresh((enum pmu_model)model);

			CHECK_EQUAL(pmu_restore(&pmu, &state, sizeof(state)),
				    saved == model ? 0 : -EINVAL);
		}
}

TEST(pmu_restore, a_part_of_a_state_is_refused)
{
	struct pmu_state saved = used(PMU_INTEL).state;
	struct pmu pmu = fresh(PMU_INTEL);

	CHECK_EQUAL(pmu_restore(&pmu, &saved, sizeof(saved) - 1), -EINVAL);
	CHECK_EQUAL(pmu_restore(&pmu, &saved, 0), -EINVAL);
	CHECK_EQUAL(pmu_restore(&pmu, &saved, sizeof(saved)), 0);
}
