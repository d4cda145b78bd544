/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest time in which no thread was sampled. A VMM may run a vCPU on threads that end before they
 * are found; the kernel adds their time to the process, so it is known how much was missed. The
 * first vCPU gets these losses.
 */
#include <sys/param.h>

#include "vmm/attach/attach_state.h"
#include "vmm/attach/proc_files.h"

#define INTERVAL NS_PER_S
/* How long the time is watched after the last sign of threads that are not found. */
#define WATCHED (10 * NS_PER_S)
/* What is missing is counted from this time and from this share of the guest time on: ticks
 * measure that with an error. */
#define LEAST       (100 * NS_PER_MS)
#define LEAST_SHARE 8

static void restart(struct attach *attach, uint64_t time)
{
	struct unsampled_time *unsampled = &attach->unsampled;

	unsampled->guest = proc_guest_time(attach->process->directory);
	unsampled->cpu = vmm_process_cpu_time(attach->process);
	unsampled->sampled = 0;
	unsampled->next = time + INTERVAL;
}

void attach_unsampled_watch(struct attach *attach)
{
	uint64_t time = attach_now();

	if (!attach->unsampled.until)
		restart(attach, time);
	attach->unsampled.until = time + WATCHED;
}

/* Guest time in ns since the last restart. Ticks may find more than all threads ran. */
static uint64_t guest_time(const struct attach *attach)
{
	const struct unsampled_time *unsampled = &attach->unsampled;
	uint64_t guest = proc_guest_time(attach->process->directory);
	uint64_t cpu = vmm_process_cpu_time(attach->process);

	if (guest < unsampled->guest || cpu < unsampled->cpu) /* the process has exited */
		return 0;
	return MIN(guest - unsampled->guest, cpu - unsampled->cpu);
}

static void count(struct attach *attach, uint64_t time)
{
	struct unsampled_time *unsampled = &attach->unsampled;
	uint64_t used = guest_time(attach);
	uint64_t missing = used > unsampled->sampled ? used - unsampled->sampled : 0;

	if (missing >= LEAST && missing >= used / LEAST_SHARE) {
		attach_record_lost(attach, 0, missing * attach->target.frequency / NS_PER_S);
		unsampled->until = time + WATCHED;
	} else if (time > unsampled->until) {
		unsampled->until = 0;
	}
}

void attach_unsampled_count(struct attach *attach, bool now)
{
	uint64_t time = attach_now();

	THREAD_CHECK(&attach->owner);
	if (!attach->unsampled.until || (!now && time < attach->unsampled.next))
		return;
	if (attach->ticks)
		count(attach, time);
	restart(attach, time);
}
