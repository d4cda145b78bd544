/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/guest_pmu.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/pmu/pmu_events.h"

__extension__ typedef unsigned __int128 wide;

/* NULL for an unknown model. */
static const struct pmu_vendor *vendor_of(uint32_t model)
{
	switch (model) {
	case PMU_INTEL:
		return &pmu_intel;
	case PMU_AMD_LEGACY:
	case PMU_AMD_CORE:
		return &pmu_amd;
	default:
		return NULL;
	}
}

static int check_clock(const struct pmu_clock *clock)
{
	const uint64_t hz[] = { clock->core, clock->reference, clock->bus };

	for (unsigned int i = 0; i < sizeof(hz) / sizeof(hz[0]); i++)
		if (hz[i] == 0 || hz[i] > PMU_HZ_MAX)
			return error_set(
				-EINVAL,
				"guest PMU: %llu Hz is not a valid frequency; the range is 1 to %llu",
				(unsigned long long)hz[i], (unsigned long long)PMU_HZ_MAX);
	return 0;
}

/* What counter NUMBER counts. */
static struct pmu_counting counting_of(const struct pmu_state *state, unsigned int number)
{
	const struct pmu_vendor *vendor = vendor_of(state->model);
	struct pmu_counting counting = number < PMU_GENERAL_MAX
					       ? vendor->general(state, number)
					       : vendor->fixed(state, number - PMU_GENERAL_MAX);

	counting.on = counting.on && (counting.select & (SELECT_USR | SELECT_OS));
	return counting;
}

static uint64_t *counter_of(struct pmu_state *state, unsigned int number)
{
	return number < PMU_GENERAL_MAX ? &state->general[number]
					: &state->fixed[number - PMU_GENERAL_MAX];
}

static uint64_t value_of(const struct pmu_state *state, unsigned int number)
{
	return number < PMU_GENERAL_MAX ? state->general[number]
					: state->fixed[number - PMU_GENERAL_MAX];
}

/* True if the host counts it. */
static bool set_host_counter(const struct pmu *pmu, unsigned int number,
			     const struct pmu_counting *counting)
{
	const uint64_t select = counting->select;
	struct pmu_request request = { 0 };

	if (!pmu->counters)
		return false;
	if (counting->on && counting->event)
		request = (struct pmu_request){ .config = select & SELECT_CONFIG,
						.user = select & SELECT_USR,
						.kernel = select & SELECT_OS,
						.interrupt = select & SELECT_INTERRUPT };
	return pmu->counters->set(pmu->counters->context, number, &request,
				  PMU_COUNTER_MASK + 1 - value_of(&pmu->state, number));
}

/* Requests the current events from the host, and reports those that do not advance. */
static void program(struct pmu *pmu)
{
	for (unsigned int i = 0; i < PMU_COUNTERS; i++) {
		const struct pmu_counting counting = counting_of(&pmu->state, i);

		pmu->backed[i] = set_host_counter(pmu, i, &counting);
		if (counting.on && !pmu->backed[i] && pmu_counting_unit(&counting) == PMU_NOTHING)
			pmu_report_unavailable(pmu, i, &counting);
	}
}

void pmu_set_counters(struct pmu *pmu, const struct pmu_counters *counters)
{
	pmu->counters = counters;
	program(pmu);
}

int pmu_init(struct pmu *pmu, enum pmu_model model, const struct pmu_clock *clock,
	     pmu_unavailable *unavailable, void *context)
{
	int error = check_clock(clock);

	if (error)
		return error;
	if (!vendor_of(model))
		return error_set(-EINVAL, "guest PMU: unknown model %d", (int)model);
	*pmu = (struct pmu){ .unavailable = unavailable, .context = context };
	pmu->state.size = sizeof(pmu->state);
	pmu->state.model = model;
	pmu->state.clock = *clock;
	pmu_reset(pmu);
	return 0;
}

/* Replaces the state of PMU by STATE. */
static void set_state(struct pmu *pmu, const struct pmu_state *state)
{
	pmu->state = *state;
	/* The host's pending counts belong to the previous registers. */
	for (unsigned int i = 0; pmu->counters && i < PMU_COUNTERS; i++)
		(void)pmu->counters->consume(pmu->counters->context, i);
	program(pmu);
}

void pmu_reset(struct pmu *pmu)
{
	const struct pmu_state *old = &pmu->state;
	struct pmu_state state = {
		.size = old->size, .model = old->model, .clock = old->clock, .time = old->time
	};

	vendor_of(old->model)->reset(&state);
	set_state(pmu, &state);
}

static bool any_outside(const uint64_t *values, const uint64_t *bits, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (values[i] & ~bits[i])
			return true;
	return false;
}

/* True if STATE has a bit that no register can have. */
static bool has_impossible_bit(const struct pmu_state *state)
{
	struct pmu_state bits = { .model = state->model };

	vendor_of(state->model)->writable(&bits);
	return any_outside(state->select, bits.select, PMU_GENERAL_MAX) ||
	       any_outside(state->general, bits.general, PMU_GENERAL_MAX) ||
	       any_outside(state->fixed, bits.fixed, PMU_FIXED_MAX) ||
	       any_outside(&state->fixed_control, &bits.fixed_control, 1) ||
	       any_outside(&state->global_control, &bits.global_control, 1) ||
	       any_outside(&state->global_status, &bits.global_status, 1) ||
	       any_outside(&state->freeze_on_pmi, &bits.freeze_on_pmi, 1);
}

int pmu_restore(struct pmu *pmu, const void *saved, size_t size)
{
	struct pmu_state state;
	int error;

	if (size != sizeof(state))
		return error_set(-EINVAL, "guest PMU: a saved state must have %zu bytes, not %zu",
				 sizeof(state), size);
	memcpy(&state, saved, sizeof(state));
	if (state.size != sizeof(state))
		return error_set(-EINVAL,
				 "guest PMU: the size in the saved state is %u bytes, not %zu",
				 state.size, sizeof(state));
	if (state.model != pmu->state.model)
		return error_set(-EINVAL,
				 "guest PMU: the saved state is of model %u, the guest's is %u",
				 state.model, pmu->state.model);
	error = check_clock(&state.clock);
	if (error)
		return error;
	if (state.time == PMU_NEVER || has_impossible_bit(&state))
		return error_set(-EINVAL, "guest PMU: no guest can reach the saved state");
	set_state(pmu, &state);
	return 0;
}

void pmu_cpuid(const struct pmu *pmu, uint32_t function, uint32_t index, uint32_t registers[4])
{
	vendor_of(pmu->state.model)->cpuid(pmu, function, index, registers);
}

bool pmu_read_msr(const struct pmu *pmu, uint32_t index, uint64_t *value)
{
	return vendor_of(pmu->state.model)->read_msr(&pmu->state, index, value);
}

bool pmu_write_msr(struct pmu *pmu, uint32_t index, uint64_t value)
{
	if (!vendor_of(pmu->state.model)->write_msr(&pmu->state, index, value))
		return false;
	program(pmu);
	return true;
}

bool pmu_read_counter(const struct pmu *pmu, uint32_t index, uint64_t *value)
{
	return vendor_of(pmu->state.model)->read_counter(&pmu->state, index, value);
}

void pmu_set_freeze_on_pmi(struct pmu *pmu, bool freeze)
{
	pmu->state.freeze_on_pmi = freeze && pmu->state.model == PMU_INTEL;
}

bool pmu_is_counting(const struct pmu *pmu)
{
	for (unsigned int i = 0; i < PMU_COUNTERS; i++) {
		const struct pmu_counting counting = counting_of(&pmu->state, i);

		if (pmu->backed[i] || pmu_counting_unit(&counting) != PMU_NOTHING)
			return true;
	}
	return false;
}

static uint64_t unit_hz(const struct pmu_clock *clock, enum pmu_unit unit)
{
	switch (unit) {
	case PMU_CORE_CYCLES:
		return clock->core;
	case PMU_REFERENCE_CYCLES:
		return clock->reference;
	case PMU_BUS_CYCLES:
		return clock->bus;
	case PMU_NOTHING:
		break;
	}
	return 0;
}

/* Since time 0: differences add up exactly, regardless of how often the counters are advanced. */
static wide cycles_at(uint64_t time, uint64_t hz)
{
	return (wide)time * hz / NS_PER_S;
}

/* When COUNTING's counter, currently VALUE, goes from all ones to 0. */
static uint64_t overflow_time(const struct pmu_state *state, const struct pmu_counting *counting,
			      uint64_t value)
{
	const uint64_t hz = unit_hz(&state->clock, pmu_counting_unit(counting));
	wide cycles, time;

	if (hz == 0)
		return PMU_NEVER;
	cycles = cycles_at(state->time, hz) + PMU_COUNTER_MASK + 1 - value;
	time = (cycles * NS_PER_S + hz - 1) / hz;
	return time < PMU_NEVER ? (uint64_t)time : PMU_NEVER;
}

uint64_t pmu_next_overflow(const struct pmu *pmu)
{
	uint64_t first = PMU_NEVER;

	for (unsigned int i = 0; i < PMU_COUNTERS; i++) {
		const struct pmu_counting counting = counting_of(&pmu->state, i);

		if ((counting.select & SELECT_INTERRUPT) && !pmu->backed[i]) {
			const uint64_t time =
				overflow_time(&pmu->state, &counting, value_of(&pmu->state, i));

			first = time < first ? time : first;
		}
	}
	return first;
}

/* The count of counter NUMBER up to TIME. */
static wide counted(const struct pmu *pmu, unsigned int number, const struct pmu_counting *counting,
		    uint64_t time)
{
	const uint64_t hz = unit_hz(&pmu->state.clock, pmu_counting_unit(counting));

	if (pmu->backed[number])
		return pmu->counters->consume(pmu->counters->context, number);
	return cycles_at(time, hz) - cycles_at(pmu->state.time, hz);
}

/* Advances all counters to TIME. True if a PMI is due. */
static bool count_all(struct pmu *pmu, uint64_t time)
{
	bool pmi = false;

	for (unsigned int i = 0; i < PMU_COUNTERS; i++) {
		const struct pmu_counting counting = counting_of(&pmu->state, i);
		uint64_t *counter = counter_of(&pmu->state, i);
		const wide sum = *counter + counted(pmu, i, &counting, time);

		*counter = (uint64_t)sum & PMU_COUNTER_MASK;
		if (sum > PMU_COUNTER_MASK) {
			pmu->state.global_status |= counting.status;
			pmi |= (counting.select & SELECT_INTERRUPT) != 0;
		}
	}
	return pmi;
}

bool pmu_advance(struct pmu *pmu, uint64_t time)
{
	struct pmu_state *state = &pmu->state;
	uint64_t stop = time;
	bool pmi;

	assert(time >= state->time);
	if (state->freeze_on_pmi) {
		const uint64_t frozen = pmu_next_overflow(pmu);

		stop = frozen < time ? frozen : time;
	}
	pmi = count_all(pmu, stop);
	if (pmi && state->freeze_on_pmi)
		state->global_control = 0;
	state->time = time;
	if (pmu->counters) /* the distance to the next overflow has changed */
		program(pmu);
	return pmi;
}
