/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: a collector that writes nothing until it is triggered, and then a complete
 * file from what the rings hold of the time before. The rings are in overwrite mode and are copied,
 * so neither the guest nor sampling waits for a file.
 *
 * A trigger opens a window: from BEFORE it to its AFTER. The file is written when the window has
 * passed. Triggers until then are listed in the same file; triggers while it is written get the
 * next one. Triggers of the guest cannot postpone a file; those of users can.
 *
 * Collector thread, except create and destroy: the thread that starts and stops it.
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

/* A reason to write a file. */
struct flight_trigger {
	uint64_t number; /* of the requester; passed on to the result */
	uint64_t after;  /* ns of samples after it to include */
	/* ns to wait for related triggers, so that they are listed in the same file: a panic and
	 * the reset that follows. Samples of that time are in the file only if one came. */
	uint64_t patience;
	bool by_guest;    /* can come as often as the guest likes */
	const char *path; /* of a file for this trigger alone, valid until its result; NULL: the
			     run's next */
	struct perf_data_flight_trigger listed; /* as listed in the file, with its time */
};

/* The result of triggers. */
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
	uint64_t since;  /* ns, by the samples' clock, of the first possible sample; 0: unknown */
	unsigned int by_guest_max; /* files that only the guest triggered, per run: the host's
				      disk is finite */
	int wake_fd;               /* readable when there may be a trigger; the owner's */
	/* The next trigger; false: none. Collector thread, as all of these. */
	bool (*next_trigger)(void *context, struct flight_trigger *trigger);
	/* Number of triggers that next_trigger() never returned. */
	uint64_t (*missed)(void *context);
	/* Each trigger that next_trigger() returned is in exactly one result. */
	void (*done)(void *context, const struct flight_result *result);
	void *context;
};

/* 0, or -EINVAL: PATH is a pipe, a device, a directory or standard output. Files do not wait for
 * readers, and there are several. Any thread. */
int flight_check_path(const char *path);

/*
 * All outlive the recorder, JIT may be NULL; OPTIONS->flight and OPTIONS->output describe the
 * files: the first one at output.path, the next ones with ".1", ".2", ... appended. -ENOMEM;
 * -EACCES and the like if no file can be created there; those of flight_check_path().
 */
int flight_create(struct flight **flight, const struct collector_options *options,
		  struct collector_kernel *kernel, const struct collector_jit *jit);
/* NULL is a no-op. */
void flight_destroy(struct flight *flight);

/* Is a window open that ends by itself? Then flight_update() has to be called. */
bool flight_waits(const struct flight *flight);

/* Keeps a copy of an event, in any order, for the files that need it. */
void flight_sideband(struct flight *flight, const struct sideband *record);

/* SAMPLE of ring RING was completed after its stop; files have it so. Copied. */
void flight_complete(struct flight *flight, size_t ring, const struct sample *sample);

/* Collects triggers, and writes a file if one is due. */
void flight_update(struct flight *flight);

/* Another boot of the guest begins: pending triggers are written with the previous kernel's
 * symbols, and no later file has samples of it. */
void flight_begin_boot(struct flight *flight);

/* The guest has ended: writes all pending files with what there is. */
void flight_end(struct flight *flight);

/* Of all files so far. */
uint64_t flight_bytes(const struct flight *flight);

/* The first error of writing one of the run's numbered files, with its message; 0: none. */
int flight_error(const struct flight *flight);

#endif
