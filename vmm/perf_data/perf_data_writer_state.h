/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the perf.data writer, one object in four files. One thread at a time.
 *
 *	perf_data_writer.c		opens, flushes and closes the file
 *	perf_data_writer_records.c	samples and sideband events as records
 *	perf_data_start.c		the start of the file: events, ids, first records
 *	perf_data_features.c		feature sections, which describe the recorded machine
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_STATE_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/thread_check.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_writer.h"

/* An event other than the first. */
struct perf_data_more_event {
	struct perf_event_attr attribute;
	char *name; /* owned */
};

/* The content of the feature sections. Empty strings and zeros are unknown facts. */
struct perf_data_facts {
	char *hostname, *release, *cpu_description, *cpuid, *command_line; /* owned */
	const char *event_name;
	uint64_t memory_kib;
	uint32_t cpus;
	struct perf_event_attr attribute;
	/* Ids of each event, one per vCPU: 1 to IDS for the first event, and so on. */
	uint64_t ids;
	struct perf_data_more_event *more; /* owned */
	size_t more_count, more_room;
	unsigned int compression, ratio;
	uint64_t first_time, last_time; /* of samples, ns */
	uint64_t wall_time,
		clock_time;     /* one moment by CLOCK_REALTIME and the samples' clock, ns */
	struct bytes build_ids; /* records of FEATURE_BUILD_ID */
};

struct perf_data_writer {
	struct thread_check thread;
	struct perf_data_output *output;
	enum perspective perspective;
	bool callchains;
	bool kernel_hidden;
	pid_t vmm_pid;
	const struct perf_data_watches *watches; /* NULL: none */
	struct perf_data_facts facts;
	struct losses losses;
	struct perf_data_times times;
	const struct perf_data_flight *flight; /* NULL: not a flight recording */
	uint64_t latest;                       /* ns, of all records */
	uint64_t round_latest;                 /* LATEST at the end of the last round */
	struct bytes record;                   /* under construction */
};

/* -ENOMEM with its message. */
int perf_data_writer_no_memory(void);

/* Starts a record of TYPE (linux/perf_event.h, or perf's own) with MISC in writer->record. */
void perf_data_writer_begin(struct perf_data_writer *writer, uint32_t type, uint16_t misc);
/* Sets the record's size and passes it to the output. 0, or a negative errno of writing; -ENOMEM or
 * -EINVAL: it is not written. */
int perf_data_writer_end(struct perf_data_writer *writer);
/* Adds new watches to the file, and addresses that became known. 0, or the errors of writing. */
int perf_data_writer_update_watches(struct perf_data_writer *writer);

/*
 * The start of a file or pipe: the events, their ids, and the first records. A file that can get
 * more events has room for them between its header and the data. The size of the attribute section
 * limits the valid ones; it has 8 bytes and is written last, so the file is valid whenever the
 * writer is killed.
 */

/* The first event's attribute for a recording with OPTIONS. */
void perf_data_describe_event(struct perf_event_attr *attribute,
			      const struct perf_data_options *options);
/* The attribute of WATCH in a recording whose first event is CLOCK. */
void perf_data_describe_watch(struct perf_event_attr *attribute,
			      const struct perf_event_attr *clock,
			      const struct perf_data_watch *watch);

/* Writes the start at once: a valid file without samples. -ENOMEM, or the errors of writing. */
int perf_data_start(const struct perf_data_writer *writer);
/* Adds the last event of writer->facts to the file; its samples may follow. Errors as above. */
int perf_data_start_event(const struct perf_data_writer *writer);
/* Rewrites the attribute of EVENT; a no-op in pipe mode. Errors as above. */
int perf_data_start_change(const struct perf_data_writer *writer, size_t event);

/*
 * Feature sections. Each is written twice: as a PERF_RECORD_HEADER_FEATURE at the start of the
 * data, which is there from the first flush on, and as a section after the data when the file is
 * closed.
 */

/* Appends FEATURE as a record, if it is known. */
void perf_data_feature_record(const struct perf_data_facts *facts, enum perf_data_feature feature,
			      struct bytes *to);
/* Appends all features that are known at the start; those that readers need first come first. */
void perf_data_feature_records(const struct perf_data_facts *facts, struct bytes *to);
/* Appends the table of sections and the sections, for position OFFSET of the file. BITMAP gets the
 * bits of the file header. */
void perf_data_feature_sections(const struct perf_data_facts *facts, uint64_t offset,
				struct bytes *to, uint64_t bitmap[4]);
/* Appends a build id to the facts; MISC is the cpumode of the image's mapping. */
void perf_data_add_build_id(struct perf_data_facts *facts, uint16_t misc, int32_t pid,
			    const char *name, const uint8_t *build_id, size_t build_id_size);

#endif
