/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings with known samples: generated from numbers, written by our writer, and compared with
 * what a reader returns. Mismatches fail the test.
 */
#ifndef KVMSCOPE_TESTS_E2E_PERF_RECORDING_H
#define KVMSCOPE_TESTS_E2E_PERF_RECORDING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/sample_record.h"
#include "tests/unit/fake_guest.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_writer.h"

#define VMM_PID   4242
#define FIRST_TID 5000

struct recording {
	const char *path;
	unsigned int samples;
	unsigned int compression;
	enum perspective perspective;
	uint64_t text;                  /* of kernel addresses */
	const struct fake_guest *guest; /* mapped after a part of the samples; NULL: no mapping */
	bool leave_open;                /* the file is flushed and never closed */
	bool wall_clock;
};

/*
 * Restarts the deterministic sequence with sample 0; returns the next of the numbers that samples
 * are made of.
 */
void recording_rewind(void);
uint32_t recording_random(uint32_t below);

/*
 * Makes sample NUMBER of every recording, with its kernel at TEXT; call it in order. SAMPLE has
 * room for all chains.
 */
void recording_sample(struct sample *sample, unsigned int number, uint64_t text);

/*
 * The part of sample NUMBER that is independent of its location: its time, its weight, and its
 * vCPU, one of VCPUS in turn.
 */
void recording_sample_begin(struct sample *sample, unsigned int number, unsigned int vcpus);

/*
 * For tests with their own recordings: open the file, name the vCPU threads, and map the guest in
 * the same way.
 */
int recording_open(struct perf_data_writer **writer, const struct recording *recording);
void recording_name_vcpus(struct perf_data_writer *writer);
void recording_map_guest(struct perf_data_writer *writer, const struct fake_guest *guest,
			 bool host);

/* Writes the whole file. */
void recording_write(const struct recording *recording);

/*
 * Starts a process that writes the file and does not close it; READY gets a byte when the file
 * exists.
 */
pid_t recording_in_child(const struct recording *recording, int ready);

/* Like recording_write(), but flushes everything and closes nothing. */
void recording_leave(const struct recording *recording);

/*
 * Reads the file with our reader and compares; returns the number of samples, all of which are as
 * written.
 */
unsigned int recording_read(const struct recording *recording, bool *cut_off);

/* Reads the file at PATH to its end, for EVENTS. False: it cannot be read, which fails the test. */
bool recording_replay(const char *path, const struct perf_data_events *events);

#endif
