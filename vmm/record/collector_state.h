/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector, for the files that it is made of:
 *
 *	collector.c        thread, turns, boots of the guest, start and stop
 *	collector_rings.c  records that come out of the rings
 *	collector_files.c  the files that they go into, one after the other
 *
 * Collector thread, or the thread that starts and stops the collector while it does not run.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_STATE_H
#define KVMSCOPE_RECORD_COLLECTOR_STATE_H

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "shared/thread_check.h"
#include "vmm/record/collector.h"
#include "vmm/record/collector_jit.h"
#include "vmm/record/collector_kernel.h"
#include "vmm/record/collector_kernel_parts.h"
#include "vmm/record/collector_output.h"
#include "vmm/record/flight_sideband.h"
#include "vmm/resolve/resolver.h"

/* Limit for a guest that changes its kernel again and again: the host's disk is finite. */
#define COLLECTOR_FILES_MAX 1000

struct collector {
	struct collector_options options;
	struct thread_check owner;      /* the collector's thread while it runs */
	struct collector_output output; /* without a writer: nothing is written now */
	struct flight *flight;          /* NULL: samples are written as they come */
	struct collector_kernel kernel;
	bool owns_parser;                  /* that of the options */
	struct user_tables *tables;        /* unwind tables of user images */
	struct user_symbols *user_symbols; /* NULL: there is no cache for them */
	struct collector_jit jit;          /* functions that processes generated at run time */
	struct resolver *resolver;         /* its rings: the vCPUs', then those of sideband */
	pthread_t thread;
	struct pollfd *wakes; /* the rings', if records come late those of sideband, our own, and
				 the flight recorder's */
	size_t wake_count;
	unsigned int turns;     /* the first ones */
	bool received;          /* a ring had records in this pass */
	uint64_t last_received; /* ns, CLOCK_MONOTONIC: the last pass with records */
	int stop_fd;            /* eventfd: stop or reset */
	atomic_bool stop;
	bool reset;                /* is requested; under reset_lock, as reset_done */
	pthread_cond_t reset_done; /* signalled when it is no longer */
	pthread_mutex_t reset_lock;
	char path[PATH_MAX];            /* of the output, if not that of the options */
	uint64_t next_file;             /* ns; with options.files */
	struct flight_sideband reports; /* reports that each file begins with; with options.files */
	uint64_t file_samples;          /* in the open file */
	uint64_t closed_samples;        /* in earlier files */
	uint64_t readable;              /* of all these, those flushed to readers */
	uint64_t readable_here;         /* of those, in the open file */
	unsigned int files;             /* begun so far */
	bool one_file;                  /* no other file can follow: it is a pipe or device */
	uint64_t closed_bytes;          /* of complete files */
	struct losses earlier;          /* counted by resolvers and files before the present ones */
	uint64_t guest_lost;            /* breakpoints of the guest's own, in all files */
	struct losses before_file;      /* in all files before this one */
	struct perf_data_times times_before_file;
	uint64_t next_flush;     /* ns */
	uint64_t next_round;     /* ns */
	uint64_t *last_time;     /* per vCPU, of its latest sample */
	uint64_t *lost;          /* per ring, samples known to be lost */
	uint64_t *sideband_lost; /* per ring of sideband, the same */
	uint64_t lost_before;    /* samples lost by their sources, before the rings */
	int error;               /* the first one of writing; rings are still drained */
	bool all_written;        /* all samples are in the file; only symbols follow */
	char message[ERROR_MESSAGE_SIZE];
	pthread_mutex_t lock; /* of statistics */
	struct collector_statistics statistics;
};

/* ns of CLOCK_MONOTONIC. */
uint64_t collector_now(void);

/* Keeps the first ERROR (0: none) and its message for collector_stop(). */
void collector_note_error(struct collector *collector, int error);

/* Is a file open, and was it written without an error? */
bool collector_is_writing(const struct collector *collector);

/* Reads all records: samples and sideband go to the resolver, losses and events to the file. Counts
 * in COUNTS. */
void collector_rings_read(struct collector *collector, struct collector_statistics *counts);

/* At the end: a ring that stayed full has no record of its last losses. */
void collector_rings_read_last_losses(struct collector *collector,
				      struct collector_statistics *counts);

/* Since the start, of all files. */
void collector_losses(const struct collector *collector, struct losses *losses);

/* Opens the first or the next file. Errors of opening it; with options.files they are reported
 * there, and this returns 0. */
int collector_files_begin(struct collector *collector);

/* Completes the open file, and begins that of the guest's next kernel. */
int collector_files_next(struct collector *collector);

/* With options.files: completes the open file, or gives it up after an error. */
void collector_files_end(struct collector *collector);

/* With options.files: begins the next file if it is due at TIME (ns, CLOCK_MONOTONIC). */
void collector_files_update(struct collector *collector, uint64_t time);

/* Writes buffered samples out if that is due. */
void collector_files_write_out(struct collector *collector, uint64_t time);

/* Writes losses and the counts of watches to the file. */
void collector_files_write_counts(struct collector *collector);

/* From here on another kernel runs than the one in the file: its addresses stay unsymbolized. */
void collector_files_hide_kernel(struct collector *collector);

#endif
