/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/event_options.h"

#include <string.h>

#include "shared/option_table.h"

int event_options_set(struct attach_options *options, char *text)
{
	static const char *const names[] = { "cpu-clock", "cycles", "kvm:exit", "kvm:off-cpu",
					     NULL };
	char *rest = text, *name;

	options->event = ATTACH_CLOCK;
	options->outside = 0;
	while ((name = strsep(&rest, ","))) {
		int index = option_choice("--event", name, names);

		if (index < 0)
			return index;
		if (index < 2)
			options->event = (enum attach_event)index;
		else
			options->outside |= index == 2 ? ATTACH_EXITS : ATTACH_OFF_CPU;
	}
	return 0;
}

/* The order is that of attach_outside_event(). */
void event_options_list(unsigned int outside, struct perf_data_watches *events)
{
	if (outside & ATTACH_EXITS)
		perf_data_watches_add(
			events, &(struct perf_data_watch){ .outside = true, .name = "kvm:exit" });
	if (outside & ATTACH_OFF_CPU)
		perf_data_watches_add(events, &(struct perf_data_watch){ .outside = true,
									 .name = "kvm:off-cpu" });
}
