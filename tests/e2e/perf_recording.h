/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings whose every sample is known: made from numbers, written by our
 * writer, and compared with what a reader gives. Failures are the test's.
 */
#ifndef KVMSCOPE_TESTS_E2E_PERF_RECORDING_H
#define KVMSCOPE_TESTS_E2E_PERF_RECORDING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/sample_record.h"
#include "tests/unit/fake_guest.h"
#include "vmm/perf_data/perf_data_writer.h"

#define VMM_PID   4242
#define FIRST_TID 5000

struct recording {
	const char *path;
	unsigned int samples;
	unsigned int compression;
	enum perspective perspective;
	uint64_t text;                  /* of addresses in the kernel */
	const struct fake_guest *guest; /* mapped after a part of the samples; NULL: no mapping */
	bool leave_open;                /* flushed and never closed */
	bool wall_clock;
};

/* Starts again with sample 0, which is to be asked for next; and the next of the numbers that
 * samples are made of, the same ones each time. */
void recording_rewind(void);
uint32_t recording_random(uint32_t below);

/* Sample NUMBER of every recording, with its kernel at TEXT; asked for in order. SAMPLE has room
 * for all chains. */
void recording_sample(struct sample *sample, unsigned int number, uint64_t text);

/* The part of sample NUMBER that is not where it was taken: its time, its weight, and one of VCPUS
 * in turn.
 */
void recording_sample_begin(struct sample *sample, unsigned int number, unsigned int vcpus);

/* For recordings of a test's own: as the others are opened, name their threads, and map their
 * guest. */
int recording_open(struct perf_data_writer **writer, const struct recording *recording);
void recording_name_vcpus(struct perf_data_writer *writer);
void recording_map_guest(struct perf_data_writer *writer, const struct fake_guest *guest,
			 bool host);

/* Writes the whole file. */
void recording_write(const struct recording *recording);

/* Starts a process that writes it and does not close it; READY gets a byte when the file is there.
 */
pid_t recording_in_child(const struct recording *recording, int ready);

/* The same, to its end: all is flushed, nothing closed. */
void recording_leave(const struct recording *recording);

/* Reads the file by our reader and compares; gives how many samples there were, all as they were
 * written. */
unsigned int recording_read(const struct recording *recording, bool *cut_off);

#endif
