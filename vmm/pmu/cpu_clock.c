/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/cpu_clock.h"

#include <assert.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/log.h"

void cpu_clock_open(struct cpu_clock *clock)
{
	/* exclude_kernel lowers the required privilege; the event counts kernel time
	 * nevertheless. */
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.exclude_kernel = 1,
	};

	clock->event =
		(int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (clock->event < 0)
		log_debug(
			"no cpu-clock event for the guest's PMU: %m; using the thread's CPU time");
}

void cpu_clock_close(struct cpu_clock *clock)
{
	if (clock->event >= 0)
		close(clock->event);
}

uint64_t cpu_clock_now(const struct cpu_clock *clock)
{
	uint64_t count = 0;
	ssize_t size;

	if (clock->event < 0)
		return clock_ns(CLOCK_THREAD_CPUTIME_ID);
	size = read(clock->event, &count, sizeof(count));
	assert(size == sizeof(count)); /* cannot fail for an open event of the calling thread */
	(void)size;
	return count;
}
