// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "vmm/pmu/pmu_events.h"

/* AMD has four more bits of the event in 35:32 (APM vol. 2 13.2.1); for Intel they are reserved, so 0. */
static unsigned int select_event(uint64_t select)
{
	return (unsigned int)(select & SELECT_EVENT) | (unsigned int)(select >> 32 & 0xf) << 8;
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

enum pmu_unit pmu_select_unit(const struct pmu_event *event, uint64_t select)
{
	return event && select_is_plain(select) ? event->unit : PMU_NOTHING;
}

void pmu_tell(struct pmu *pmu, uint64_t key, const char *text)
{
	for (unsigned int i = 0; i < pmu->told_count; i++)
		if (pmu->told[i] == key)
			return;
	if (!pmu->unavailable || pmu->told_count == PMU_TOLD_MAX)
		return;
	pmu->told[pmu->told_count++] = key;
	pmu->unavailable(pmu->context, text);
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

void pmu_tell_select(struct pmu *pmu, const struct pmu_event *event, uint64_t select)
{
	const uint64_t key = select & ~(SELECT_INTERRUPT | SELECT_ENABLE);
	char text[128];

	/* At no privilege level there is nothing to count. */
	if (!(select & SELECT_ENABLE) || !(select & (SELECT_USR | SELECT_OS)) ||
	    pmu_select_unit(event, select) != PMU_NOTHING)
		return;
	(void)snprintf(text, sizeof(text), "event 0x%02x umask 0x%02x (%s)%s", select_event(select),
		       select_umask(select), event ? event->name : "no name known", select_modifier(select));
	pmu_tell(pmu, key, text);
}
