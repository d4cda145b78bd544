/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of perf.data from the inside: perf_data_writer.c opens and closes the file,
 * perf_data_writer_records.c makes its records. One thread at a time.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_STATE_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_STATE_H

#include "vmm/perf_data/perf_data_features.h"
#include "vmm/perf_data/perf_data_writer.h"

struct perf_data_writer {
	struct perf_data_output *output;
	enum perspective perspective;
	bool callchains;
	bool kernel_hidden;
	pid_t vmm_pid;
	const struct perf_data_watches *watches; /* NULL: there are none */
	struct perf_data_facts facts;
	struct losses losses;
	const struct perf_data_flight *flight; /* NULL: of no flight recorder */
	uint64_t latest;                       /* ns, of all records */
	uint64_t round_latest;                 /* LATEST at the end of the last round */
	struct bytes record;                   /* the one that is being put together */
};

/* The next record, of TYPE (linux/perf_event.h, or perf's own) with MISC, in place of the one
 * before. What follows is added to writer->record. */
void perf_data_writer_begin(struct perf_data_writer *writer, uint32_t type, uint16_t misc);
/* Gives it to the output, with its size. 0, or a negative errno of writing; -ENOMEM or -EINVAL:
 * there is none. */
int perf_data_writer_end(struct perf_data_writer *writer);

/* Takes up the watches that came, and the addresses that became known. 0, or a negative errno of
 * writing. */
int perf_data_writer_update_watches(struct perf_data_writer *writer);

#endif
