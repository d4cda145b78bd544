// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "vmm/pmu/pmu_events.h"

static unsigned int select_event(uint64_t select)
{
	return (unsigned int)(select & SELECT_EVENT) | (unsigned int)((select & SELECT_EVENT_HIGH) >> 24);
}

static unsigned int select_umask(uint64_t select)
{
	return (unsigned int)(select & SELECT_UMASK) >> 8;
}

const struct pmu_event *pmu_event_find(const struct pmu_event *events, unsigned int count, uint64_t select)
{
	for (unsigned int i = 0; i < count; i++)
		if (events[i].event == select_event(select) && events[i].umask == select_umask(select))
			return &events[i];
	return NULL;
}

/* Is it for each cycle, at all privilege levels? The time for which the guest ran tells no less. */
static bool select_is_plain(uint64_t select)
{
	return (select & SELECT_USR) && (select & SELECT_OS) &&
	       !(select & (SELECT_EDGE | SELECT_INVERT | SELECT_CMASK));
}

enum pmu_unit pmu_counting_unit(const struct pmu_counting *counting)
{
	return counting->on && counting->event && select_is_plain(counting->select) ? counting->event->unit
										    : PMU_NOTHING;
}

bool pmu_counters_have(const struct pmu *pmu, const struct pmu_event *event)
{
	const struct pmu_counters *counters = pmu->counters;

	return counters && counters->has(counters->context, pmu_select_of(event->event, event->umask));
}

static const char *select_modifier(uint64_t select)
{
	if (select & (SELECT_EDGE | SELECT_INVERT | SELECT_CMASK))
		return ", with an edge, INV or CMASK";
	if (!(select & SELECT_OS))
		return ", of user mode alone";
	if (!(select & SELECT_USR))
		return ", of kernel mode alone";
	return "";
}

/* Is this the first time that KEY is told of, and is there room to remember it? */
static bool is_news(struct pmu *pmu, uint64_t key)
{
	for (unsigned int i = 0; i < pmu->told_count; i++)
		if (pmu->told[i] == key)
			return false;
	if (!pmu->unavailable || pmu->told_count == PMU_TOLD_MAX)
		return false;
	pmu->told[pmu->told_count++] = key;
	return true;
}

void pmu_tell_counting(struct pmu *pmu, unsigned int number, const struct pmu_counting *counting)
{
	const uint64_t select = counting->select;
	const char *name = counting->event ? counting->event->name : "no name known";
	const uint64_t key =
		(uint64_t)counting->fixed << 63 | (select & (SELECT_CONFIG | SELECT_USR | SELECT_OS));
	char text[128];

	if (!is_news(pmu, key))
		return;
	if (counting->fixed)
		(void)snprintf(text, sizeof(text), "fixed counter %u (%s)%s", number - PMU_GENERAL_MAX, name,
			       select_modifier(select));
	else
		(void)snprintf(text, sizeof(text), "event 0x%02x umask 0x%02x (%s)%s", select_event(select),
			       select_umask(select), name, select_modifier(select));
	pmu->unavailable(pmu->context, text);
}
