/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report: a profile's samples by function, image, vCPU, program, cgroup, process, thread. Rows
 * agree with perf report's to the sample. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_REPORT_ROWS_H
#define KVMSCOPE_REPORT_REPORT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/report/profile_stacks.h"

enum report_key {
	REPORT_SYMBOL = 1 << 0,
	REPORT_IMAGE = 1 << 1,
	REPORT_VCPU = 1 << 2,
	REPORT_COMM = 1 << 3,
	REPORT_PID = 1 << 4,
	REPORT_TID = 1 << 5, /* needs a profile whose options tell threads apart */
	REPORT_APP = 1 << 6,
	REPORT_CGROUP = 1 << 7,
	REPORT_CONTAINER = 1 << 8,
};

struct report_options {
	size_t event;      /* the one that it is about */
	unsigned int keys; /* at least one enum report_key: samples that agree in all of them make
			      one row */
	bool children;     /* also count a function for what it called; order by that */
	size_t limit;      /* show at most so many rows; 0 all */
	bool screen;       /* the limit is that of a terminal, not what somebody asked for */
	double percent_limit; /* show no row below it */
	unsigned int
		columns; /* of the terminal that shows it; 0: lines may be as long as they come */
};

struct report_vcpu {
	uint32_t vcpu;
	uint64_t samples, weight;
};

/* What a row is about: fields that are no key of the report are NULL or 0. */
struct report_row {
	const struct profile_frame *frame; /* with REPORT_SYMBOL */
	const char *image;                 /* with REPORT_SYMBOL or REPORT_IMAGE */
	bool kernel; /* the first frame that came into the row was the kernel's */
	uint32_t vcpu, pid, tid;
	const char *comm, *app, *cgroup, *container;
	uint64_t samples, weight; /* taken in it */
	uint64_t total_samples,
		total_weight;      /* taken in it or in what it called; the same without children */
	struct report_vcpu *vcpus; /* of the total, the busiest first */
	size_t vcpu_count;
	uint64_t stamp; /* of the builder */
};

struct report {
	const struct profile *profile;
	struct report_options options;
	struct report_row **rows; /* largest first, limits applied */
	size_t count;
	size_t hidden; /* rows that the limits leave out */
	void *memory;
};

/* PROFILE must live as long as the report. 0 or -ENOMEM. */
int report_build(struct report **report, const struct profile *profile,
		 const struct report_options *options);
/* NULL is a no-op. */
void report_free(struct report *report);

/* What it is about. */
const struct profile_event *report_event(const struct report *report);

/* The share of the weight of all samples of its event, 0 to 100. */
double report_percent(const struct report *report, uint64_t weight);

/* The hits there would have been, had the watch been in a register all the time; as many as there
 * were if it was. */
uint64_t report_scaled_hits(const struct profile_event *event);

/*
 * COUNT reports of one profile, at least one. Lines that begin with '#', and rows, for one event
 * after the other. COLOR: for a terminal. 0, or a negative errno of writing.
 */
int report_print_text(struct report *const *reports, size_t count, FILE *to, bool color);
/* One JSON object. 0, -ENOMEM or a negative errno of writing. */
int report_print_json(struct report *const *reports, size_t count, FILE *to);

#endif
