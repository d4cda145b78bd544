// SPDX-License-Identifier: Apache-2.0
#include "vmm/pmu/pmu_time.h"

/*
 * The timer runs on while exits are handled, so it may come before the guest
 * has run so long: then it is armed for the rest. One that comes too early is left as it is, and so
 * is one that nobody wants any more until it has come: a guest that handles a PMI stops and starts its
 * counters several times.
 */
static int set_timer(struct pmu_time *self, uint64_t *now, uint64_t next)
{
	const bool passed = self->timer.armed && self->timer.deadline <= *now;
	uint64_t deadline;
	int error;

	if (next == PMU_NEVER || next - self->guest_time > PMU_NEVER - *now)
		return passed ? pmu_timer_disarm(&self->timer) : 0;
	deadline = *now + (next - self->guest_time);
	if (self->timer.armed && !passed && self->timer.deadline <= deadline)
		return 0;
	error = pmu_timer_arm(&self->timer, *now, deadline);
	*now = pmu_thread_time();
	return error;
}

int pmu_time_enter(struct pmu_time *self, const struct pmu *pmu)
{
	uint64_t now;
	int error;

	if (!self->counting && !self->timer.armed)
		return 0;
	now = pmu_thread_time();
	error = set_timer(self, &now, self->counting ? pmu_next_overflow(pmu) : PMU_NEVER);
	self->running = self->counting;
	self->entered = now;
	return error;
}

bool pmu_time_leave(struct pmu_time *self, struct pmu *pmu)
{
	if (!self->running)
		return false;
	self->running = false;
	self->guest_time += pmu_thread_time() - self->entered;
	return pmu_advance(pmu, self->guest_time);
}

void pmu_time_changed(struct pmu_time *self, const struct pmu *pmu)
{
	self->counting = pmu_is_counting(pmu);
	self->guest_time = pmu->state.time;
}

int pmu_time_open(struct pmu_time *self, const struct pmu *pmu)
{
	*self = (struct pmu_time){ 0 };
	pmu_time_changed(self, pmu);
	return pmu_timer_open(&self->timer);
}

void pmu_time_close(struct pmu_time *self)
{
	pmu_timer_close(&self->timer);
}
