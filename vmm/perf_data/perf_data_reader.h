/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads perf.data files: ours, perf's, cut-off ones, compressed ones, and
 * what perf writes into a pipe. The file is hostile: every offset is checked,
 * unknown records are skipped and counted. One thread at a time.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_READER_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "vmm/perf_data/perf_data_flight.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_watch.h"

struct perf_data_reader;

/* An event of the file. */
struct perf_data_event {
	char *name;           /* NULL: the file does not say; the reader's, any bytes */
	uint64_t sample_type; /* PERF_SAMPLE_* */
	uint64_t branch_type; /* PERF_SAMPLE_BRANCH_* */
	uint64_t registers_user, registers_interrupt; /* bitmaps of those that samples have */
	uint64_t read_format;                         /* PERF_FORMAT_* */
	uint64_t frequency;                           /* Hz, 0 if it has a period */
	uint64_t period; /* what a sample stands for that does not say it; 0 with a frequency */
	uint32_t type;
	uint64_t config;
	bool sample_id_all;
};

struct perf_data_sample {
	uint64_t time, ip, period, address;
	uint32_t pid, tid;
	uint32_t cpu;               /* UINT32_MAX unless the file says */
	uint32_t machine_pid, vcpu; /* 0 and UINT32_MAX unless the file says */
	uint16_t misc;              /* PERF_RECORD_MISC_CPUMODE_MASK part */
	uint16_t event; /* index of the event in the file, 0 the first; found by the sample's id */
	uint64_t id;
	uint64_t cgroup;           /* its id; 0 where the file does not say */
	const uint64_t *callchain; /* PERF_CONTEXT_* markers included; NULL without */
	size_t callchain_size;
	bool has_values; /* of a watch: */
	struct perf_data_hit_values values;
};

struct perf_data_mapping_event {
	uint64_t time, start, size, offset;
	int32_t pid, tid;
	uint16_t misc;
	const char *name;
	const uint8_t *build_id;
	size_t build_id_size;
	bool is_data; /* nothing in it can be executed (PERF_RECORD_MISC_MMAP_DATA) */
	bool is_code; /* one function of the kernel that is called so, made at run time
		       * (PERF_RECORD_KSYMBOL)
		       */
};

/* One entry of the table of build ids (HEADER_BUILD_ID): what perf record writes where mappings
 * carry none.
 */
struct perf_data_build_id {
	const char *name; /* the image's path, "[kernel.kallsyms]" */
	int32_t pid;      /* of the machine, -1 the host */
	uint16_t misc;
	const uint8_t *build_id;
	size_t build_id_size; /* 1 to 20 */
};

/*
 * Called in file order, which is the order of time only between the samples of one CPU; the table
 * of build ids before everything else; any may be NULL. A negative result ends the reading with it.
 * What the arguments point to is valid during the call only.
 */
struct perf_data_events {
	int (*sample)(void *context, const struct perf_data_sample *sample);
	int (*mapping)(void *context, const struct perf_data_mapping_event *mapping);
	int (*comm)(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time);
	/* PID runs a new program, whose mappings follow (PERF_RECORD_MISC_COMM_EXEC); before comm()
	 * for the same record. */
	int (*exec)(void *context, uint32_t pid, uint64_t time);
	/* TID of PID begins as a copy of PARENT_TID of PARENT_PID; PID == PARENT_PID for a thread
	 * (PERF_RECORD_FORK). BEFORE: it began before that time, and has nothing of its parent's
	 * (PERF_RECORD_MISC_FORK_EXEC). */
	int (*fork)(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		    uint32_t parent_tid, uint64_t time, bool before);
	/* The cgroup with ID has PATH (PERF_RECORD_CGROUP). */
	int (*cgroup)(void *context, uint64_t id, const char *path);
	int (*build_id)(void *context, const struct perf_data_build_id *build_id);
	int (*lost)(void *context, uint64_t count);
	/* EVENT (its index) gives no samples on one CPU from here on (PERF_RECORD_THROTTLE), or
	 * does so again. */
	int (*throttled)(void *context, uint16_t event, bool stopped, uint64_t time);
	void *context;
};

/* "" and 0 for what the file does not say. */
struct perf_data_summary {
	bool cut_off;        /* not closed by its writer: read up to where it ends */
	bool compressed;     /* some records are */
	uint64_t skipped;    /* records of types or kinds that are not understood */
	unsigned int cpus;   /* of the recorded machine */
	unsigned int events; /* in the file; with those of a pipe as far as it was read */
	char event_name[64]; /* of the first event */
	char hostname[65], release[65], arch[65], command_line[1024];
	char cpu_description[128], version[64]; /* version: of the program that wrote the file */
	unsigned int frequency;                 /* Hz, of the first event */
	/* One moment by CLOCK_REALTIME and by the clock of the samples, ns. */
	uint64_t wall_time, clock_time;
	struct losses losses; /* as far as the file was read; LOST records are not counted in it */
	struct perf_data_flight flight; /* a flight recording if it has triggers */
};

/*
 * Opens PATH ("-": standard input; a recording of kvmscoped also by the name that it had before,
 * see recording_name.h) and reads its header. -EINVAL for what is no perf.data file or a broken
 * header, -ENOTSUP for other byte order, -EISDIR for a directory of perf record --threads, the
 * errors of open().
 */
int perf_data_reader_open(struct perf_data_reader **reader, const char *path);

/*
 * Reads all records; 0 also for a file that was cut off in the middle. Of a
 * file (not of a pipe) any number of times. -EINVAL for broken records, with
 * their place in the message; what came before them has been delivered.
 */
int perf_data_reader_run(struct perf_data_reader *reader, const struct perf_data_events *events);

/* Those of the summary; of a pipe after the first run. NULL behind the last. Valid until the next
 * run. */
const struct perf_data_event *perf_data_reader_event(const struct perf_data_reader *reader,
						     size_t number);

/*
 * What event NUMBER has counted in the end, on the vCPU at place VCPU of its ids or on all (-1):
 * the latest READ record of each. False if there is none. What perf means by such records is
 * another thing (one for each thread that ended).
 */
bool perf_data_reader_count(const struct perf_data_reader *reader, size_t number, int vcpu,
			    struct perf_data_count *count);

/* Of a closed file complete after opening; of others after the first run. Lives as long as the
 * reader. */
const struct perf_data_summary *perf_data_reader_summary(const struct perf_data_reader *reader);
/* NULL is a no-op. */
void perf_data_reader_close(struct perf_data_reader *reader);

#endif
