// SPDX-License-Identifier: Apache-2.0
/*
 * A guest that does what it likes with its PMU, whose state may come from a
 * file: first a byte for the model, then a saved state, then what the guest does.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm/pmu/pmu.h"

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			abort();                                                                             \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct action {
	uint8_t kind;
	uint8_t index;
	uint64_t value;
} __attribute__((packed));

/* All registers there are and some beside them. */
static uint32_t msr_of(uint8_t index)
{
	static const uint32_t first[] = { 0xc0, 0x185, 0x308, 0x345, 0x38c, 0x4c0, 0xc0010000, 0xc0010200 };

	return first[index >> 4 & 7] + (index & 0xf);
}

static void check_state(const struct pmu *pmu)
{
	struct pmu copy = *pmu;

	for (unsigned int i = 0; i < PMU_GENERAL_MAX; i++)
		CHECK(pmu->state.general[i] >> PMU_WIDTH == 0);
	for (unsigned int i = 0; i < PMU_FIXED_MAX; i++)
		CHECK(pmu->state.fixed[i] >> PMU_WIDTH == 0);
	CHECK(pmu_restore(&copy, &pmu->state, sizeof(pmu->state)) == 0);
	CHECK(memcmp(&copy.state, &pmu->state, sizeof(copy.state)) == 0);
}

/* The PMI comes when it was said to, and not before. */
static void check_next_overflow(const struct pmu *pmu)
{
	const uint64_t next = pmu_next_overflow(pmu);
	struct pmu before = *pmu, then = *pmu;

	CHECK(next > pmu->state.time || next == PMU_NEVER);
	CHECK(!pmu_advance(&before, next - 1));
	if (next != PMU_NEVER)
		CHECK(pmu_advance(&then, next));
}

static void write_register(struct pmu *pmu, uint32_t msr, uint64_t value)
{
	const struct pmu_state before = pmu->state;
	uint64_t read;

	if (pmu_write_msr(pmu, msr, value))
		CHECK(pmu_read_msr(pmu, msr, &read));
	else
		CHECK(memcmp(&before, &pmu->state, sizeof(before)) == 0);
}

static void act(struct pmu *pmu, const struct action *action)
{
	const uint64_t room = UINT64_MAX - 1 - pmu->state.time;
	const uint64_t step = action->value >> (action->index & 63);
	uint64_t value;

	switch (action->kind % 6) {
	case 0:
	case 1:
		write_register(pmu, msr_of(action->index), action->value);
		break;
	case 2:
		(void)pmu_advance(pmu, pmu->state.time + (step < room ? step : room));
		break;
	case 3:
		(void)pmu_read_counter(pmu, (uint32_t)action->value, &value);
		break;
	case 4:
		pmu_set_freeze_on_pmi(pmu, action->value & 1);
		break;
	case 5:
		if (action->index == 0)
			pmu_reset(pmu);
		break;
	}
}

static void unavailable(void *context, const char *event)
{
	CHECK(strlen(event) < 128);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct pmu_clock clock_rates = { 2999999999, 2000000000, 25000000 };
	const enum pmu_model model = size ? (enum pmu_model)(PMU_INTEL + data[0] % 3) : PMU_INTEL;
	struct action action;
	struct pmu pmu;

	CHECK(pmu_init(&pmu, model, &clock_rates, unavailable, NULL) == 0);
	if (size < 1 + sizeof(struct pmu_state))
		return 0;
	(void)pmu_restore(&pmu, data + 1, sizeof(struct pmu_state));
	data += 1 + sizeof(struct pmu_state);
	size -= 1 + sizeof(struct pmu_state);
	for (; size >= sizeof(action); data += sizeof(action), size -= sizeof(action)) {
		memcpy(&action, data, sizeof(action));
		act(&pmu, &action);
		check_state(&pmu);
		check_next_overflow(&pmu);
	}
	return 0;
}
