/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The feature sections: what a perf.data file says about the machine it was
 * recorded on. Each is written twice: as a PERF_RECORD_HEADER_FEATURE at the
 * start of the data, where it is there from the first flush on, and in the
 * sections behind the data when the file is closed.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_FEATURES_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "vmm/perf_data/perf_data_format.h"

/* An event besides the first. */
struct perf_data_more_event {
	struct perf_event_attr attribute;
	char *name; /* owned */
};

/* Empty strings and zeros are facts that are not known. */
struct perf_data_facts {
	char *hostname, *release, *arch, *cpu_description, *command_line; /* owned */
	const char *event_name;
	uint64_t memory_kib;
	uint32_t cpus;
	struct perf_event_attr attribute;
	uint64_t ids; /* of each event, one for each vCPU; those of the first are 1 to IDS, then
			 those of the next */
	struct perf_data_more_event *more; /* owned */
	size_t more_count, more_room;
	unsigned int compression, ratio;
	uint64_t first_time, last_time; /* of samples, ns */
	uint64_t wall_time, clock_time; /* the same moment by CLOCK_REALTIME and by the clock of the
					   samples, ns */
	struct bytes build_ids;         /* records of FEATURE_BUILD_ID */
};

/* Appends what FEATURE holds. False: not known, nothing was appended. */
bool perf_data_feature(const struct perf_data_facts *facts, enum perf_data_feature feature,
		       struct bytes *to);

/* Appends FEATURE as a record of the stream, if it is known. */
void perf_data_feature_record(const struct perf_data_facts *facts, enum perf_data_feature feature,
			      struct bytes *to);

/* Appends all that is known as such records: what readers need before the first sample comes first.
 */
void perf_data_feature_records(const struct perf_data_facts *facts, struct bytes *to);

/*
 * Appends the table of sections and the sections, for a place OFFSET bytes
 * into the file; BITMAP gets the bits of the file header.
 */
void perf_data_feature_sections(const struct perf_data_facts *facts, uint64_t offset,
				struct bytes *to, uint64_t bitmap[4]);

/* Appends a build id to the facts; MISC is the cpumode of the image's mapping. */
void perf_data_add_build_id(struct perf_data_facts *facts, uint16_t misc, int32_t pid,
			    const char *name, const uint8_t *build_id, size_t build_id_size);

#endif
