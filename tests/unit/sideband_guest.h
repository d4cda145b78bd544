/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording, made by the collector, of a guest whose processes exec, map and
 * unmap at one address, and end; the events come behind the samples that they
 * are for. What each sample is to be attributed to is known.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SIDEBAND_GUEST_H
#define KVMSCOPE_TESTS_UNIT_SIDEBAND_GUEST_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/record/collector.h"

#define SIDEBAND_GUEST_CODE 0x55550000ull
/* From this sample on, a mapping may have come before or after. */
#define SIDEBAND_GUEST_UNSURE 13

struct sideband_guest_sample {
	uint32_t pid;
	const char *comm, *image; /* the image's last part; "[unknown]" where nothing is mapped */
};

extern const struct sideband_guest_sample sideband_guest_samples[];
extern const size_t sideband_guest_count;

/* 0 or the collector's error. STATISTICS may be NULL. */
int sideband_guest_record(const char *path, enum perspective perspective,
			  struct collector_statistics *statistics);

/* The same guest by a flight recorder, which is triggered when all is over. */
int sideband_guest_flight(const char *path);

#endif
