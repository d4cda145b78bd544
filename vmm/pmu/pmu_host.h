/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of a guest's PMU by the host's own: for each counter that the guest
 * has switched on, a perf event of the vCPU's thread that counts in the guest alone
 * (exclude_host). perf_event_open(2); who may: kernel.perf_event_paranoid at most 1, or
 * CAP_PERFMON.
 *
 * A hostile guest chooses what is counted, so only what is listed is let through to
 * the host: the events in the tables of pmu_intel.c and pmu_amd.c, all of which
 * are the core's own (L2 events of AMD's family 15H: those of the two cores that share it),
 * with unit mask, EDGE, INV, CMASK and the privilege levels. There is
 * no way for it to AnyThread (its hyperthread neighbour), pin control, PEBS, LBR, to what
 * needs further registers (offcore, load latency), to the northbridge's and other
 * uncore events, nor to the numbers that perf gives a meaning of its own (event 00H).
 *
 * The events are not pinned. Where the host has fewer counters than are wanted, perf
 * shares them out in time: then counts are scaled by the time for which the event was to
 * count over that for which it did. That is told once and counted.
 *
 * An overflow is noticed when the vCPU is left, for which perf sends it the kick's
 * signal; the event may have come up to PMU_HOST_PERIOD_MIN times more by then, and while
 * counters are shared, perf's signal comes late.
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

/* No shorter way to an overflow is given to perf: a guest can ask for one after each event. */
#define PMU_HOST_PERIOD_MIN 1000

/* What read(2) gives of a perf event with PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING. */
struct pmu_host_reading {
	uint64_t count;
	uint64_t enabled, running; /* ns */
};

/*
 * What is asked of perf, for tests to stand in for it: hardware counters are rare where
 * tests run. Each is 0 or negative errno, open also a descriptor.
 */
struct pmu_host_perf {
	int (*open)(void *context,
		    const struct perf_event_attr *attributes); /* of the calling thread */
	int (*direct_signal)(void *context, int event); /* the kick's, to the calling thread */
	int (*control)(void *context, int event, unsigned long request,
		       uint64_t *argument); /* ioctl(2) */
	int (*read)(void *context, int event, struct pmu_host_reading *reading);
	void (*close)(void *context, int event);
	/* The architectural events that the host's processor has: bits as of CPUID.0AH:EBX, but
	 * set. Intel's alone. */
	uint32_t (*architectural)(void *context);
	void *context;
};

/* The kernel's. */
extern const struct pmu_host_perf pmu_host_perf;

struct pmu_host_statistics {
	uint64_t scaled;    /* readings that were scaled */
	uint64_t unseen_ns; /* for which a guest's counter was on and its event never counted: of
			       that nothing is in the counter */
	uint64_t refused;   /* events that perf did not open */
};

/* Told once each, on the vCPU's thread, that counts are scaled, and that perf has refused an event.
 */
typedef void pmu_host_told(void *context, const char *message);

struct pmu_host;

/*
 * For one vCPU of MODEL, which has to be that of the host's processor. PERF is not
 * copied. -ENOTSUP, with its message, where the host has no counters for us; -ENOMEM.
 */
int pmu_host_create(struct pmu_host **host, enum pmu_model model, const struct pmu_host_perf *perf,
		    pmu_host_told *told, void *context);
/* NULL is a no-op. */
void pmu_host_destroy(struct pmu_host *host);

/*
 * After pmu_reset(), before another thread runs the vCPU: an event counts for the thread that
 * opened it. What was counted and not taken is dropped.
 */
void pmu_host_close_events(struct pmu_host *host);

/* For pmu_set_counters(). Owned by HOST. */
const struct pmu_counters *pmu_host_counters(struct pmu_host *host);

void pmu_host_statistics(const struct pmu_host *host, struct pmu_host_statistics *statistics);

#endif
