/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts a guest's events with the host's counters: one perf event of the vCPU's thread, counting
 * only in the guest (exclude_host), for each counter that the guest has enabled. See
 * perf_event_open(2); needs kernel.perf_event_paranoid of at most 1, or CAP_PERFMON.
 *
 * A hostile guest selects the events, so only known ones reach the host: those in the tables of
 * pmu_intel.c and pmu_amd.c, which are local to the core (L2 events of AMD family 15H: to the two
 * cores that share it), with unit mask, EDGE, INV, CMASK and privilege levels. A guest cannot use
 * AnyThread (its hyperthread neighbour), pin control, PEBS, LBR, events with further registers
 * (offcore, load latency), northbridge and other uncore events, nor the numbers to which perf gives
 * its own meaning (event 00H).
 *
 * The events are not pinned. If the host has too few counters, perf multiplexes them, and counts
 * are scaled by the ratio of enabled to running time. This is reported once and counted.
 *
 * An overflow is noticed when the vCPU is left, for which perf sends the kick signal. By then the
 * event may have occurred up to PMU_HOST_PERIOD_MIN more times, and while counters are multiplexed
 * perf's signal is late.
 *
 *	pmu_host_create, pmu_host_counters	any thread
 *	the functions of the counters		see struct pmu_counters
 *	pmu_host_statistics, pmu_host_close_events,
 *	pmu_host_destroy			the vCPU's thread, or while it has none
 */
#ifndef KVMSCOPE_PMU_PMU_HOST_H
#define KVMSCOPE_PMU_PMU_HOST_H

#include <linux/perf_event.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/pmu/guest_pmu.h"

/* Lower limit for perf's periods: a guest can request an overflow after every event. */
#define PMU_HOST_PERIOD_MIN 1000

/* read(2) of a perf event with PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING. */
struct pmu_host_reading {
	uint64_t count;
	uint64_t enabled, running; /* ns */
};

/* The calls to perf, which tests replace because machines for tests rarely have counters. Each
 * returns 0 or a negative errno, open also a descriptor. */
struct pmu_host_perf {
	int (*open)(void *context,
		    const struct perf_event_attr *attributes); /* for the calling thread */
	int (*direct_signal)(void *context,
			     int event); /* sends the kick signal to the calling thread */
	int (*control)(void *context, int event, unsigned long request,
		       uint64_t *argument); /* ioctl(2) */
	int (*read)(void *context, int event, struct pmu_host_reading *reading);
	void (*close)(void *context, int event);
	/* The architectural events of the host's processor: bits as in CPUID.0AH:EBX, but set if
	 * the event exists. Intel only. */
	uint32_t (*architectural)(void *context);
	void *context;
};

/* The kernel's perf. */
extern const struct pmu_host_perf pmu_host_perf;

struct pmu_host_statistics {
	uint64_t scaled;    /* readings that were scaled */
	uint64_t unseen_ns; /* time for which a guest's counter was enabled but its event never
			       counted */
	uint64_t refused;   /* events that perf did not open */
};

/* Reports, once each on the vCPU's thread, that counts are scaled and that perf refused an
 * event. */
typedef void pmu_host_report(void *context, const char *message);

struct pmu_host;

/* For one vCPU of MODEL, which must be the host processor's. PERF is not copied. -ENOTSUP with a
 * message if the host has no counters for guests; -ENOMEM. */
int pmu_host_create(struct pmu_host **host, enum pmu_model model, const struct pmu_host_perf *perf,
		    pmu_host_report *report, void *context);
/* NULL is a no-op. */
void pmu_host_destroy(struct pmu_host *host);

/* After pmu_reset(), before another thread runs the vCPU: an event counts for the thread that
 * opened it. Pending counts are dropped. */
void pmu_host_close_events(struct pmu_host *host);

/* For pmu_set_counters(). Owned by HOST. */
const struct pmu_counters *pmu_host_counters(struct pmu_host *host);

void pmu_host_statistics(const struct pmu_host *host, struct pmu_host_statistics *statistics);

#endif
