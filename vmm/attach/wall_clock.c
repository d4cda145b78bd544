/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/wall_clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "shared/clock_ns.h"

int wall_clock_open(struct wall_clock *clock, size_t count)
{
	clock->threads = calloc(count, sizeof(clock->threads[0]));
	clock->sums = calloc(count, sizeof(clock->sums[0]));
	clock->count = count;
	return clock->threads && clock->sums ? 0 : -ENOMEM;
}

void wall_clock_close(struct wall_clock *clock)
{
	free(clock->threads);
	free(clock->sums);
	clock->threads = NULL;
	clock->sums = NULL;
}

static uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* The kernel updates both times at different moments, so the rest may be too small at first. */
static void add(struct wall_sums *sums, const struct wall_thread *from,
		const struct wall_thread *to)
{
	uint64_t ran = grown(to->times.ran, from->times.ran),
		 waited = grown(to->times.waited, from->times.waited);

	atomic_fetch_add(&sums->ns[VCPU_RUNNING], ran);
	atomic_fetch_add(&sums->ns[VCPU_WAITING], waited);
	atomic_fetch_add(&sums->ns[VCPU_ASLEEP], grown(to->at - from->at, ran + waited));
}

void wall_clock_finish(struct wall_clock *clock, const struct vmm_process *process,
		       const struct vmm_vcpu *vcpus, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct wall_thread now = { .tid = vcpus[i].tid }, *last;

		if (vcpus[i].id >= clock->count ||
		    !thread_cpu_times_of(process->directory, now.tid, &now.times))
			continue;
		last = &clock->threads[vcpus[i].id];
		now.at = clock_ns(CLOCK_MONOTONIC);
		if (last->tid == now.tid)
			add(&clock->sums[vcpus[i].id], last, &now);
		*last = now;
	}
}

void wall_clock_update(struct wall_clock *clock, const struct vmm_process *process,
		       const struct vmm_vcpu *vcpus, size_t count)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (now < clock->next)
		return;
	clock->next = now + NS_PER_S;
	wall_clock_finish(clock, process, vcpus, count);
}

int wall_clock_rows(struct wall_clock *clock, struct vcpu_times_rows *rows)
{
	*rows = (struct vcpu_times_rows){ 0 };
	for (unsigned int vcpu = 0; vcpu < clock->count; vcpu++) {
		const struct wall_sums *sums = &clock->sums[vcpu];
		struct vcpu_times *row;

		if (!atomic_load(&sums->ns[VCPU_RUNNING]) && !atomic_load(&sums->ns[VCPU_ASLEEP]))
			continue;
		row = vcpu_times_row(rows, vcpu);
		if (!row)
			return -ENOMEM;
		for (unsigned int i = 0; i < VCPU_STATES; i++)
			row->ns[i] = atomic_load(&sums->ns[i]);
	}
	return 0;
}

struct vcpu_times wall_clock_read(struct wall_clock *clock)
{
	struct vcpu_times times = { 0 };

	for (size_t vcpu = 0; vcpu < clock->count; vcpu++)
		for (unsigned int i = 0; i < VCPU_STATES; i++)
			times.ns[i] += atomic_load(&clock->sums[vcpu].ns[i]);
	return times;
}
