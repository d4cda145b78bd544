/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the flight recorder keeps of the guest's sideband: the state of all
 * processes at one moment, the base, before which no sample is asked for any
 * more, and the records since. A file gets the base as if a source had just
 * begun to tell, and then the records. What the base takes in costs only what
 * still lives, so days cost no more than the window does. The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_SIDEBAND_H
#define KVMSCOPE_RECORD_FLIGHT_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/record/flight_cgroups.h"
#include "vmm/resolve/resolver_processes.h"

/* Bytes of records: with more, the base moves on, and samples before it know no mappings. */
#define FLIGHT_SIDEBAND_MAX (32ul << 20)

struct flight_sideband_entry {
	struct sideband *record; /* owned */
	uint64_t number;         /* in the order in which they came */
};

/* Zeroed: nothing is known. All of it is of the memory of base.store.account, the owner's to set
 * before the first record. */
struct flight_sideband {
	struct resolver_processes base;
	struct flight_cgroups cgroups; /* of the base, too */
	uint64_t base_time;            /* ns; all records are of this time or later */
	uint64_t lost; /* ns: what the base has of this time or earlier may be so no more; 0:
			* nothing was lost
			*/
	struct flight_sideband_entry *entries;
	size_t count, room, bytes;
	uint64_t numbers;
	size_t due;      /* bytes at which it is time to forget */
	uint64_t missed; /* records for which there was no room, or that came too late */
};

/* RECORD was given by sideband_check(); it is copied. */
void flight_sideband_keep(struct flight_sideband *sideband, const struct sideband *record);

/* Has so much come that flight_sideband_advance() is worth its time? */
bool flight_sideband_is_due(const struct flight_sideband *sideband);

/* No sample before HORIZON, ns, is asked for any more. */
void flight_sideband_advance(struct flight_sideband *sideband, uint64_t horizon);

/* Nothing is known any more. */
void flight_sideband_free(struct flight_sideband *sideband);

/* All of it in order of time. */
struct flight_sideband_list {
	struct sideband **records;
	size_t count;
	size_t owned; /* so many, from the first on, are the list's */
};

/* LIST is valid until SIDEBAND changes, and is to be freed in any case. -ENOMEM. */
int flight_sideband_export(struct flight_sideband *sideband, struct flight_sideband_list *list);
/* Frees what it holds; zeroed, it holds nothing. */
void flight_sideband_list_free(struct flight_sideband_list *list);

#endif
