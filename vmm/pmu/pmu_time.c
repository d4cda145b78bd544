/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/pmu_time.h"

/* ns: long after a guest that handles a PMI has enabled its counters again. */
#define FAR 10000000u

static int open_clock(struct pmu_time *self)
{
	int error;

	if (self->open)
		return 0;
	error = pmu_timer_open(&self->timer);
	if (error)
		return error;
	cpu_clock_open(&self->clock);
	self->open = true;
	return 0;
}

static int arm(struct pmu_time *self, uint64_t *now, uint64_t wait, uint32_t kicks)
{
	int error = pmu_timer_arm(&self->timer, wait);

	self->armed = true;
	self->deadline = *now + wait;
	self->kicks = kicks;
	*now = cpu_clock_now(&self->clock);
	return error;
}

/*
 * The timer also runs while exits are handled, and by a slightly different clock, so its kick may
 * be early: then it is armed for the rest. The source of a kick is unknown, so it is armed again
 * after each. A timer that is too early stays as it is. So does one that is no longer needed, if it
 * expires soon: a guest that handles a PMI stops and starts its counters several times. While it is
 * armed, each entry reads the clock.
 */
static int set_timer(struct pmu_time *self, uint64_t *now, uint64_t next, uint32_t kicks)
{
	const bool came = self->armed && (self->kicks != kicks || self->deadline <= *now);
	uint64_t wait;

	if (next == PMU_NEVER || next - self->guest_time > PMU_NEVER - *now) {
		if (!came && (!self->armed || self->deadline <= *now + FAR))
			return 0;
		self->armed = false;
		return pmu_timer_disarm(&self->timer);
	}
	wait = next - self->guest_time;
	if (self->armed && !came && self->deadline <= *now + wait)
		return 0;
	return arm(self, now, wait, kicks);
}

int pmu_time_enter(struct pmu_time *self, const struct pmu *pmu, uint32_t kicks)
{
	uint64_t now;
	int error;

	if (!self->counting && !self->armed)
		return 0;
	error = open_clock(self);
	if (error)
		return error;
	now = cpu_clock_now(&self->clock);
	self->overflow = self->counting ? pmu_next_overflow(pmu) : PMU_NEVER;
	error = set_timer(self, &now, self->overflow, kicks);
	self->running = self->counting;
	self->entered = now;
	return error;
}

bool pmu_time_leave(struct pmu_time *self, struct pmu *pmu, uint64_t *late)
{
	*late = 0;
	if (!self->running)
		return false;
	self->running = false;
	self->guest_time += cpu_clock_now(&self->clock) - self->entered;
	if (self->guest_time > self->overflow)
		*late = self->guest_time - self->overflow;
	return pmu_advance(pmu, self->guest_time);
}

void pmu_time_changed(struct pmu_time *self, const struct pmu *pmu)
{
	self->counting = pmu_is_counting(pmu);
	self->guest_time = pmu->state.time;
}

void pmu_time_open(struct pmu_time *self, const struct pmu *pmu)
{
	*self = (struct pmu_time){ 0 };
	pmu_time_changed(self, pmu);
}

void pmu_time_close(struct pmu_time *self)
{
	if (!self->open)
		return;
	cpu_clock_close(&self->clock);
	pmu_timer_close(&self->timer);
	self->open = false;
}
