/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: a collector that writes nothing until something
 * triggers it, and then what the rings hold of the time before, each time a
 * file that is complete. The rings are in overwrite mode and are copied, so
 * neither the guest nor sampling waits for a file that is being written.
 *
 * A trigger opens a window: the samples from BEFORE it to its AFTER. When that
 * has passed the file is written. Triggers that come until then are named in
 * the same file; those that come while it is written get the next one.
 * What the guest causes can not put a file off; what a user asks for may.
 *
 * All functions belong to the collector's thread, create and destroy to the
 * one that starts and stops it.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_RECORDER_H
#define KVMSCOPE_RECORD_FLIGHT_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/perf_data/perf_data_blocks.h"

struct collector_jit;
struct collector_kernel;
struct collector_options;
struct flight;

/* Something that a file is to be written for. */
struct flight_trigger {
	uint64_t number; /* the asker's; told in the result */
	uint64_t after;  /* ns of samples behind it that are wanted */
	/*
	 * ns to wait for what follows from it, so that it is named in the same file: a panic and
	 * the reset that it ends with. Samples of that time are in the file only if something
	 * followed.
	 */
	uint64_t patience;
	bool by_guest;    /* it can come as often as the guest likes */
	const char *path; /* of a file for this one alone, valid until its result; NULL: the run's
			     next */
	struct perf_data_flight_trigger told; /* what the file says of it, and its time */
};

/* What became of some triggers. */
struct flight_result {
	const uint64_t *numbers; /* of the triggers */
	size_t count;
	const char *path; /* of the file */
	uint64_t samples; /* in the file */
	uint64_t bytes;   /* of the file */
	int error;        /* 0: the file is complete; else a negative errno, and error_message() */
};

struct flight_options {
	uint64_t before; /* ns of samples before a trigger; 0: all that the rings hold */
	uint64_t since; /* ns, by the clock of the samples: there are none from before; 0: not known
			 */
	unsigned int by_guest_max; /* files that the guest alone can cause in a run: the host's disk
				      is finite */
	int wake_fd;               /* readable when there may be a trigger; the owner's */
	/* The next trigger; false: there is none. Called on the collector's thread, as all of
	 * these. */
	bool (*take)(void *context, struct flight_trigger *trigger);
	/* Triggers that were never given to take(), so far. */
	uint64_t (*missed)(void *context);
	/* Each trigger that was taken comes back in one result. */
	void (*done)(void *context, const struct flight_result *result);
	void *context;
};

/*
 * 0, or -EINVAL and its message: at PATH is a pipe, a device, a directory or our standard output.
 * Files are written where they do not wait for a reader, and several stand beside each other. Any
 * thread.
 */
int flight_check_path(const char *path);

/*
 * All outlive the recorder, JIT may be NULL; OPTIONS->flight and OPTIONS->output say what is
 * written where: the first file at output.path, the next ones at output.path
 * with ".1", ".2", ... behind it. -ENOMEM; -EACCES and the like if no file can be made there, also
 * those of flight_check_path().
 */
int flight_create(struct flight **flight, const struct collector_options *options,
		  struct collector_kernel *kernel, const struct collector_jit *jit);
/* NULL is a no-op. */
void flight_destroy(struct flight *flight);

/* A window is open, which ends by itself in some time: flight_turn() is to be called then. */
bool flight_waits(const struct flight *flight);

/* What happened in the guest, in whatever order it comes: goes into the files that it matters for.
 * Copied. */
void flight_sideband(struct flight *flight, const struct sideband *record);

/* SAMPLE of ring number RING has what could be looked up behind its stop: files have it so. Copied.
 */
void flight_complete(struct flight *flight, size_t ring, const struct sample *sample);

/* Takes what was triggered, and writes a file if one is due. */
void flight_turn(struct flight *flight);

/*
 * Another boot of the guest begins: what was triggered until now is written with the names of the
 * kernel before, and no later file has samples of it.
 */
void flight_begin_boot(struct flight *flight);

/* The guest has ended: writes all that is still due, with what there is. */
void flight_end(struct flight *flight);

/* Bytes of all files so far. */
uint64_t flight_bytes(const struct flight *flight);

/* The first error of writing one of the run's numbered files, with its message; 0: none. */
int flight_error(const struct flight *flight);

#endif
