/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's sideband for files that begin later: the state of all processes at one moment, the
 * base, before which no sample is written, and the records since then. A file begins with the base,
 * as if a source had just started, followed by the records. The base only has
 * what is still alive, so a recording of days takes no more memory than the window. Collector
 * thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_SIDEBAND_H
#define KVMSCOPE_RECORD_FLIGHT_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/record/process_cgroups.h"
#include "vmm/resolve/resolver_processes.h"

/* Bytes of records; beyond it the base advances, and samples before it have no mappings. */
#define FLIGHT_SIDEBAND_MAX (32ul << 20)

/* Paths of cgroups in the base. Beyond this all are dropped, and stay unknown until their next
 * report. */
#define FLIGHT_CGROUPS_MAX 16384u

struct flight_sideband_entry {
	struct sideband *record; /* owned */
	uint64_t number;         /* order of arrival */
};

/* Zeroed: empty. Charged to base.store.account, which the owner sets before the first record. */
struct flight_sideband {
	struct resolver_processes base;
	struct process_cgroups *process_cgroups; /* of the base; NULL: none was reported */
	void *cgroups; /* tree, tsearch(3): the latest struct sideband_cgroup of each id */
	size_t cgroup_count;
	uint64_t base_time; /* ns; no record is older */
	uint64_t lost;      /* ns: the base is stale up to this time; 0: nothing was lost */
	struct flight_sideband_entry *entries;
	size_t count, room, bytes;
	uint64_t numbers;
	size_t due;      /* bytes at which flight_sideband_advance() is due */
	uint64_t missed; /* records that came too late, or without memory */
};

/* Copies RECORD, which was returned by sideband_check(). */
void flight_sideband_keep(struct flight_sideband *sideband, const struct sideband *record);

/* Is flight_sideband_advance() worth its time? */
bool flight_sideband_is_due(const struct flight_sideband *sideband);

/* Advances the base to HORIZON, ns: no sample before it will be written. */
void flight_sideband_advance(struct flight_sideband *sideband, uint64_t horizon);

/* Empties it. */
void flight_sideband_free(struct flight_sideband *sideband);

/* Base and records in order of time. */
struct flight_sideband_list {
	struct sideband **records;
	size_t count, room;
	size_t owned; /* number of records, from the first one on, that the list owns */
};

/* LIST is valid until SIDEBAND changes, and to be freed in any case. -ENOMEM. */
int flight_sideband_export(struct flight_sideband *sideband, struct flight_sideband_list *list);
/* Frees what it holds; zeroed, it holds nothing. */
void flight_sideband_list_free(struct flight_sideband_list *list);

#endif
