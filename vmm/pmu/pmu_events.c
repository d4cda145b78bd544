/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "vmm/pmu/pmu_events.h"

static unsigned int select_event(uint64_t select)
{
	return (unsigned int)(select & SELECT_EVENT) |
	       (unsigned int)((select & SELECT_EVENT_HIGH) >> 24);
}

static unsigned int select_umask(uint64_t select)
{
	return (unsigned int)(select & SELECT_UMASK) >> 8;
}

const struct pmu_event *pmu_event_find(const struct pmu_event *events, unsigned int count,
				       uint64_t select)
{
	for (unsigned int i = 0; i < count; i++)
		if (events[i].event == select_event(select) &&
		    events[i].umask == select_umask(select))
			return &events[i];
	return NULL;
}

/* True if it counts each cycle at all privilege levels: run time does not distinguish less. */
static bool select_is_plain(uint64_t select)
{
	return (select & SELECT_USR) && (select & SELECT_OS) &&
	       !(select & (SELECT_EDGE | SELECT_INVERT | SELECT_CMASK));
}

enum pmu_unit pmu_counting_unit(const struct pmu_counting *counting)
{
	return counting->on && counting->event && select_is_plain(counting->select)
		       ? counting->event->unit
		       : PMU_NOTHING;
}

bool pmu_counters_have(const struct pmu *pmu, const struct pmu_event *event)
{
	const struct pmu_counters *counters = pmu->counters;

	return counters &&
	       counters->has(counters->context, pmu_select_of(event->event, event->umask));
}

enum modifier { MODIFIER_NONE, MODIFIER_EDGE, MODIFIER_USER, MODIFIER_KERNEL };

static enum modifier select_modifier(uint64_t select)
{
	if (select & (SELECT_EDGE | SELECT_INVERT | SELECT_CMASK))
		return MODIFIER_EDGE;
	if (!(select & SELECT_OS))
		return MODIFIER_USER;
	return select & SELECT_USR ? MODIFIER_NONE : MODIFIER_KERNEL;
}

static const char *modifier_name(enum modifier modifier)
{
	static const char *const names[] = { [MODIFIER_NONE] = "",
					     [MODIFIER_EDGE] = ", with EDGE, INV or CMASK",
					     [MODIFIER_USER] = ", user mode only",
					     [MODIFIER_KERNEL] = ", kernel mode only" };

	return names[modifier];
}

void pmu_share_reports(struct pmu *pmu, struct pmu *first)
{
	pmu->shared_reported = &first->reported;
}

/* Distinct for distinct names, and never 0. */
static uint64_t key_of(const struct pmu_counting *counting)
{
	return UINT64_C(1) << 63 | (uint64_t)counting->fixed << 62 |
	       (uint64_t)select_modifier(counting->select) << 60 |
	       (counting->select & (SELECT_EVENT | SELECT_EVENT_HIGH | SELECT_UMASK));
}

/* Records KEY. False if a vCPU has reported it already, or the table is full. */
static bool record_key(struct pmu_reported *reported, uint64_t key)
{
	for (unsigned int i = 0; i < PMU_REPORTED_MAX; i++) {
		uint64_t known = atomic_load(&reported->keys[i]);

		if (!known && atomic_compare_exchange_strong(&reported->keys[i], &known, key))
			return true;
		if (known == key)
			return false;
	}
	return false;
}

static void report_event(const struct pmu *pmu, unsigned int number,
			 const struct pmu_counting *counting)
{
	const uint64_t select = counting->select;
	const char *name = counting->event ? counting->event->name : "unknown";
	const char *modifier = modifier_name(select_modifier(select));
	char text[128];

	if (counting->fixed)
		(void)snprintf(text, sizeof(text), "fixed counter %u (%s)%s",
			       number - PMU_GENERAL_MAX, name, modifier);
	else
		(void)snprintf(text, sizeof(text), "event 0x%02x umask 0x%02x (%s)%s",
			       select_event(select), select_umask(select), name, modifier);
	pmu->unavailable(pmu->context, text);
}

void pmu_report_unavailable(struct pmu *pmu, unsigned int number,
			    const struct pmu_counting *counting)
{
	struct pmu_reported *reported =
		pmu->shared_reported ? pmu->shared_reported : &pmu->reported;

	if (!pmu->unavailable || atomic_load_explicit(&reported->full, memory_order_relaxed) ||
	    !record_key(reported, key_of(counting)))
		return;
	report_event(pmu, number, counting);
	if (reported->keys[PMU_REPORTED_MAX - 1] && !atomic_exchange(&reported->full, true))
		pmu->unavailable(pmu->context, NULL);
}
