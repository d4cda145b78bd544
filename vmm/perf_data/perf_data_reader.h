/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads perf.data: files of kvmscope and of perf, truncated, compressed, and in pipe mode. The file
 * is hostile: every offset is checked; unknown records are skipped and counted. One thread at a
 * time.
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_READER_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "vmm/perf_data/perf_data_blocks.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_watch.h"

struct perf_data_reader;

/* An event of the file. */
struct perf_data_event {
	char *name;           /* NULL: not in the file; owned by the reader, any bytes */
	uint64_t sample_type; /* PERF_SAMPLE_* */
	uint64_t branch_type; /* PERF_SAMPLE_BRANCH_* */
	uint64_t registers_user, registers_interrupt; /* bitmaps of the registers in samples */
	uint64_t read_format;                         /* PERF_FORMAT_* */
	uint64_t frequency;                           /* Hz; 0: it has a period */
	uint64_t period; /* of samples that carry none; 0 with a frequency */
	uint32_t type;
	uint64_t config;
	bool sample_id_all;
};

/* Writes perf's name for an event that has none to TEXT of SIZE bytes. */
void perf_data_event_type_name(const struct perf_data_event *event, char *text, size_t size);

struct perf_data_sample {
	uint64_t time, ip, period, address;
	uint32_t pid, tid;
	uint32_t cpu;               /* UINT32_MAX: unknown */
	uint32_t machine_pid, vcpu; /* 0 and UINT32_MAX: unknown */
	uint16_t misc;              /* the bits of PERF_RECORD_MISC_CPUMODE_MASK */
	uint16_t event;             /* index of the event in the file, by the sample's id */
	uint64_t id;
	uint64_t cgroup;           /* its id; 0: unknown */
	const uint64_t *callchain; /* PERF_CONTEXT_* markers included; NULL without */
	size_t callchain_size;
	bool has_values; /* of a watch: */
	struct perf_data_hit_values values;
	/* Why the vCPU was outside of the guest; any bytes; NULL: none, or unknown. Of an event of
	 * that time, or, with IS_HOST, of a sample of the host. */
	const char *reason;
	bool is_host;
};

struct perf_data_mapping_event {
	uint64_t time, start, size, offset;
	int32_t pid, tid;
	uint16_t misc;
	const char *name;
	const uint8_t *build_id;
	size_t build_id_size;
	bool is_data; /* not executable (PERF_RECORD_MISC_MMAP_DATA) */
	bool is_code; /* one kernel function NAME, generated at run time (PERF_RECORD_KSYMBOL) */
};

/* An entry of the table of build ids (HEADER_BUILD_ID), which perf record writes if mappings have
 * none. */
struct perf_data_build_id {
	const char *name; /* the image's path, "[kernel.kallsyms]" */
	int32_t pid;      /* of the machine; -1: the host */
	uint16_t misc;
	const uint8_t *build_id;
	size_t build_id_size; /* 1 to 20 */
};

/*
 * Callbacks, in file order; only samples of one CPU are in order of time. The table of build ids
 * comes before everything else. Any may be NULL. A negative result ends the reading and is
 * returned. Arguments are valid during the call only.
 */
struct perf_data_events {
	int (*sample)(void *context, const struct perf_data_sample *sample);
	int (*mapping)(void *context, const struct perf_data_mapping_event *mapping);
	int (*comm)(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time);
	/* PID executed a new program, whose mappings follow (PERF_RECORD_MISC_COMM_EXEC). Called
	 * before comm() for the same record. */
	int (*exec)(void *context, uint32_t pid, uint64_t time);
	/* TID of PID starts as a copy of PARENT_TID of PARENT_PID; PID == PARENT_PID for a thread
	 * (PERF_RECORD_FORK). BEFORE: it started before TIME and inherits nothing
	 * (PERF_RECORD_MISC_FORK_EXEC). */
	int (*fork)(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		    uint32_t parent_tid, uint64_t time, bool before);
	/* The cgroup with ID has PATH (PERF_RECORD_CGROUP). */
	int (*cgroup)(void *context, uint64_t id, const char *path);
	int (*build_id)(void *context, const struct perf_data_build_id *build_id);
	int (*lost)(void *context, uint64_t count);
	/* The event with index EVENT stops or resumes sampling on one CPU (PERF_RECORD_THROTTLE,
	 * PERF_RECORD_UNTHROTTLE). */
	int (*throttled)(void *context, uint16_t event, bool stopped, uint64_t time);
	int (*check)(void *context); /* before each record, of any type */
	void *context;
};

/* Unknown fields are "" and 0. */
struct perf_data_summary {
	bool cut_off;      /* the writer did not close the file; it is read up to its end */
	uint64_t missing;  /* of a file that is cut off: bytes of data after its end; 0: unknown */
	bool compressed;   /* some records are */
	uint64_t skipped;  /* records of unknown or broken kinds */
	unsigned int cpus; /* of the recorded machine */
	unsigned int events; /* in the file; in a pipe, up to what was read */
	char event_name[64]; /* of the first event */
	char hostname[65], release[65], arch[65], command_line[1024];
	char cpu_description[128], version[64]; /* version: of the program that wrote the file */
	unsigned int frequency;                 /* Hz, of the first event */
	uint64_t wall_time,
		clock_time;   /* one moment by CLOCK_REALTIME and the samples' clock, ns */
	struct losses losses; /* up to what was read; without LOST records */
	struct perf_data_times times;
	struct perf_data_flight flight; /* a flight recording if it has triggers */
};

/*
 * Opens PATH ("-": standard input; also by an earlier name of a recording, see recording_name.h)
 * and reads its header. -EINVAL: not a perf.data file, or a broken header; -ENOTSUP: other byte
 * order; -EISDIR: a directory of perf record --threads; the errors of open().
 */
int perf_data_reader_open(struct perf_data_reader **reader, const char *path);

/*
 * Reads all records; a truncated file is not an error. A file, unlike a pipe, can be read any
 * number of times. -EINVAL for broken records, with their position in the message, after everything
 * before them was delivered.
 */
int perf_data_reader_run(struct perf_data_reader *reader, const struct perf_data_events *events);

/* Event NUMBER, NULL after the last; for a pipe after the first run. Valid until the next run. */
const struct perf_data_event *perf_data_reader_event(const struct perf_data_reader *reader,
						     size_t number);

/*
 * The final count of event NUMBER on the vCPU at index VCPU of its ids, or on all (-1): its latest
 * READ records. False without any. Valid for kvmscope's files only: perf writes one READ record per
 * thread that exits.
 */
bool perf_data_reader_count(const struct perf_data_reader *reader, size_t number, int vcpu,
			    struct perf_data_count *count);

/* Complete after opening for a closed file, else after the first run. Lives as long as READER. */
const struct perf_data_summary *perf_data_reader_summary(const struct perf_data_reader *reader);
void perf_data_reader_close(struct perf_data_reader *reader); /* NULL is a no-op */

#endif
