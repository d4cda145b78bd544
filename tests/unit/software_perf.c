/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/software_perf.h"

#include <string.h>
#include <unistd.h>

static int open_software(void *context, const struct perf_event_attr *asked)
{
	struct perf_event_attr attributes = *asked;

	attributes.type = PERF_TYPE_SOFTWARE;
	attributes.config =
		asked->config == 0xc0 ? PERF_COUNT_SW_PAGE_FAULTS : PERF_COUNT_SW_TASK_CLOCK;
	attributes.exclude_host = 0;
	return pmu_host_perf.open(NULL, &attributes);
}

static int direct_signal(void *context, int event)
{
	return pmu_host_perf.direct_signal(NULL, event);
}

static int control(void *context, int event, unsigned long request, uint64_t *argument)
{
	return pmu_host_perf.control(NULL, event, request, argument);
}

static int read_event(void *context, int event, struct pmu_host_reading *reading)
{
	return pmu_host_perf.read(NULL, event, reading);
}

static void close_event(void *context, int event)
{
	pmu_host_perf.close(NULL, event);
}

static uint32_t all_architectural(void *context)
{
	return 0x7f;
}

const struct pmu_host_perf software_perf = {
	.open = open_software,
	.direct_signal = direct_signal,
	.control = control,
	.read = read_event,
	.close = close_event,
	.architectural = all_architectural,
};

const char *software_perf_denied(void)
{
	const struct perf_event_attr asked = { .size = sizeof(asked), .disabled = 1 };
	const int event = open_software(NULL, &asked);

	if (event < 0)
		return strerror(-event);
	close(event);
	return NULL;
}
