/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes perf records of the guest's kernel (perf_event_open(2), "MMAP layout") into sideband
 * records. The bytes are untrusted; they must not change during the call. Any thread.
 */
#ifndef KVMSCOPE_AGENT_AGENT_RECORDS_H
#define KVMSCOPE_AGENT_AGENT_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "shared/span.h"

struct agent_record {
	uint64_t guest_time; /* ns */
	union {
		struct sideband head; /* the caller sets head.time; head.size 0: skip it */
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} sideband __attribute__((aligned(8)));
};

/* Decodes the record at the start of RECORDS into *RECORD. Returns its size in bytes, or -EPROTO if
 * it is incomplete. A complete record that is invalid (e.g. a range that wraps, a mapping of
 * process 0) or of another type gets head.size 0.
 */
int agent_record_decode(struct span records, struct agent_record *record);

#endif
