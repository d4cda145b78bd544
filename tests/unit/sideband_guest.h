/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording, made by the collector, of a guest whose processes exec, map and unmap at one
 * address, and exit. The events arrive after the samples that they apply to. The correct
 * attribution of each sample is known.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SIDEBAND_GUEST_H
#define KVMSCOPE_TESTS_UNIT_SIDEBAND_GUEST_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/record/collector.h"

#define SIDEBAND_GUEST_CODE 0x55550000ull
/* From this sample on, a mapping may be before or after it. */
#define SIDEBAND_GUEST_UNSURE 13

struct sideband_guest_sample {
	uint32_t pid;
	const char *comm, *image; /* the image's base name; "[unknown]" where nothing is mapped */
};

extern const struct sideband_guest_sample sideband_guest_samples[];
extern const size_t sideband_guest_count;

/* Returns 0 or the collector's error. STATISTICS may be NULL. */
int sideband_guest_record(const char *path, enum perspective perspective,
			  struct collector_statistics *statistics);

/* The same guest with a flight recorder, which is triggered at the end. */
int sideband_guest_flight(const char *path);

#endif
