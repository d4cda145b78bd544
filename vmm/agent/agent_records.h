/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest's kernel wrote for perf (perf_event_open(2), "MMAP layout"),
 * as sideband records. The bytes are a guest's and are believed nothing; they
 * must not change meanwhile. Any thread.
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
		struct sideband head; /* head.time is for the caller to fill; head.size is 0 for a
					 record to be skipped */
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} sideband __attribute__((aligned(8)));
};

/*
 * Decodes the record at the start of RECORDS into *RECORD; returns its size in
 * bytes, or -EPROTO if there is no whole one. A record that is whole and says what can
 * not be (a range over the end of the address space, a process 0 that maps
 * files) or what is not asked for is to be skipped.
 */
int agent_record_decode(struct span records, struct agent_record *record);

#endif
