/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collector has, for the files that it is made of:
 *
 *	collector.c        its thread: looks, boots of the guest, start and stop
 *	collector_rings.c  what comes out of the rings
 *	collector_files.c  the files that it goes into, one after the other
 *
 * The functions here are called on its thread, or where that does not run.
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
#include "vmm/record/collector.h"
#include "vmm/record/collector_jit.h"
#include "vmm/record/collector_kernel.h"
#include "vmm/record/collector_output.h"
#include "vmm/record/collector_user.h"
#include "vmm/record/flight_sideband.h"
#include "vmm/resolve/resolver.h"

/* A guest may change its kernel again and again, and is not to fill the host's disk with files. */
#define COLLECTOR_FILES_MAX 1000

struct collector {
	struct collector_options options;
	struct collector_output output; /* without a writer: nothing is written as it comes */
	struct flight *flight;          /* then; else NULL */
	struct collector_kernel kernel;
	struct user_tables *tables;        /* of the images of its user space */
	struct user_symbols *user_symbols; /* NULL: there is no cache to put them into */
	struct collector_jit jit;          /* functions that its processes made at run time */
	struct resolver *resolver;         /* its rings: the vCPUs', then those of sideband */
	pthread_t thread;
	struct pollfd *wakes; /* the rings', where they come late those of sideband, our own, and
				 the flight recorder's */
	size_t wake_count;
	unsigned int looks; /* of the first */
	bool come;          /* there was something in the rings at the last look */
	uint64_t last_come; /* ns, when there was */
	int stop_fd;        /* eventfd: stop, or the guest is to be reset */
	atomic_bool stop;
	bool reset;                /* is asked for; with reset_lock, as reset_done */
	pthread_cond_t reset_done; /* it is not any more */
	pthread_mutex_t reset_lock;
	char path[PATH_MAX]; /* of the output, if it is not the one of the options */
	uint64_t next_file;  /* ns; with options.files */
	struct flight_sideband
		told; /* what the guest told, for files to begin with; with options.files */
	uint64_t file_samples;           /* in the file that is open */
	uint64_t closed_samples;         /* in the files before it */
	uint64_t readable;               /* of all these, behind which the output was flushed */
	uint64_t readable_here;          /* of those, in the file that is open */
	unsigned int files;              /* that were begun */
	bool one_file;                   /* it is none that another one could follow */
	uint64_t closed_bytes;           /* of those that are complete */
	struct losses earlier;           /* that resolvers and files before this one counted */
	uint64_t guest_lost;             /* breakpoints of the guest's own, of all files */
	struct losses before_file;       /* that are of the files before this one */
	uint64_t next_flush, next_round; /* ns */
	uint64_t *last_time;             /* for each vCPU, of its latest sample */
	uint64_t *lost;                  /* for each ring, samples known to be lost by it */
	uint64_t *sideband_lost;         /* the same of the rings of sideband */
	uint64_t lost_before;            /* by their sources, before they came to a ring */
	int error;        /* the first one of writing; the rings are drained all the same */
	bool all_written; /* the samples, when the last one was taken; names may follow */
	char message[ERROR_MESSAGE_SIZE];
	pthread_mutex_t lock; /* of statistics */
	struct collector_statistics statistics;
};

/* ns of CLOCK_MONOTONIC. */
uint64_t collector_now(void);

/* ERROR, if it is one, with its message: the first is told by who stops the collector. */
void collector_note_error(struct collector *collector, int error);

/* Is there a file that can be written? */
bool collector_is_writing(const struct collector *collector);

/* All that the rings have goes to the resolver, and losses and events to the file; counted in
 * COUNTS. */
void collector_rings_take(struct collector *collector, struct collector_statistics *counts);

/* The guest has ended: a ring that was full to the end had no room to tell of the last losses. */
void collector_rings_take_last_losses(struct collector *collector,
				      struct collector_statistics *counts);

/* Since the start, of all files. */
void collector_losses(const struct collector *collector, struct losses *losses);

/* Opens the first file, or the next. An error of opening it; with options.files none, they are
 * told. */
int collector_files_begin(struct collector *collector);

/* To the next file, of the guest's next kernel: the one that is written is complete. */
int collector_files_next(struct collector *collector);

/* With options.files: the one that is open is complete, or given up if it could not be written. */
void collector_files_end(struct collector *collector);

/* One file after the other, at TIME (ns, as all here, of CLOCK_MONOTONIC) if theirs has come. */
void collector_files_turn(struct collector *collector, uint64_t time);

/* What was taken goes into the file, now and then. */
void collector_files_write_out(struct collector *collector, uint64_t time);

/* What was lost, and what was counted besides, goes into the file. */
void collector_files_tell_counts(struct collector *collector);

/* What comes from here on is of another kernel, and what stands in the file is not: addresses have
 * no names.
 */
void collector_files_hide_kernel(struct collector *collector);

#endif
