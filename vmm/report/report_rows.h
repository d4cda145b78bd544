/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report: the samples of a profile by function, image, vCPU, program, cgroup, process or
 * thread. Rows agree with those of perf report to the sample. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_REPORT_ROWS_H
#define KVMSCOPE_REPORT_REPORT_ROWS_H

#include <jansson.h>
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
	REPORT_TID = 1 << 5, /* needs profile_options.threads */
	REPORT_APP = 1 << 6,
	REPORT_CGROUP = 1 << 7,
	REPORT_CONTAINER = 1 << 8,
};

struct report_options {
	size_t event;         /* its number in the profile */
	unsigned int keys;    /* at least one enum report_key; samples equal in all make a row */
	bool children;        /* also count callees for a function, and sort by that */
	size_t limit;         /* number of rows to show; 0: all */
	bool screen;          /* the limit is a terminal's height, not the user's choice */
	double percent_limit; /* hide smaller rows */
	unsigned int columns; /* of the terminal; 0: unlimited */
	/* Print a tree of callers, or with children of callees, below each row. */
	bool call_trees;
};

struct report_vcpu {
	uint32_t vcpu;
	uint64_t samples, weight;
};

/* The rest of a call chain that a row is in: its callers, or with children what it called. */
struct report_path {
	const struct profile_frame *const *next; /* of LENGTH frames, each STEP after the other */
	size_t length;
	int step;
	uint64_t weight;
};

/* Fields that are not keys of the report are NULL or 0. */
struct report_row {
	const struct profile_frame *frame; /* with REPORT_SYMBOL */
	const char *image;                 /* with REPORT_SYMBOL or REPORT_IMAGE */
	bool kernel;                       /* of the row's first frame */
	uint32_t vcpu, pid, tid;
	const char *comm, *app, *cgroup, *container;
	uint64_t samples, weight;             /* of the function itself */
	uint64_t total_samples, total_weight; /* with callees; the same without children */
	struct report_vcpu *vcpus;            /* of the total, the busiest first */
	size_t vcpu_count, vcpu_capacity;
	struct report_path *paths; /* with call_trees, of rows that have a tree; not sorted */
	size_t path_count, path_capacity;
	bool has_tree;
	uint64_t stamp; /* of the builder */
};

struct report {
	const struct profile *profile;
	struct report_options options;
	struct report_row **rows; /* largest first, limits applied */
	size_t count;
	size_t hidden; /* rows beyond the limits */
	void *memory;
};

/* PROFILE must live as long as the report. 0 or -ENOMEM. */
int report_build(struct report **report, const struct profile *profile,
		 const struct report_options *options);
void report_free(struct report *report); /* NULL is a no-op */

const struct profile_event *report_event(const struct report *report);

/* The share of the weight of all samples of the event, 0 to 100. */
double report_percent(const struct report *report, uint64_t weight);

/* The estimated hits if the watch had been in a register all the time. */
uint64_t report_scaled_hits(const struct profile_event *event);

/* The share in percent that a branch of a call tree needs to be shown. */
double report_tree_limit(const struct report_options *options);

/* Print COUNT reports of one profile, at least one: as lines that start with '#' and rows, in COLOR
 * for a terminal, or as one JSON object. 0, -ENOMEM or a negative errno of writing. */
int report_print_text(struct report *const *reports, size_t count, FILE *to, bool color);
int report_print_json(struct report *const *reports, size_t count, FILE *to);

/* Parts of report_print_text(). */

/* The heading and the rows, each with its call tree. 0 or -ENOMEM. */
int report_print_rows(const struct report *report, FILE *to, bool color);
/* The call tree of ROW, whose paths it sorts; nothing if it has none. 0 or -ENOMEM. */
int report_print_call_tree(const struct report *report, const struct report_row *row, FILE *to);
/* The first WIDTH bytes of TEXT, with ".." at the end if it is longer; 0: all. Characters of UTF-8
 * stay whole. */
void report_print_cut(const char *text, size_t width, FILE *to);
/* The symbol of FRAME, or its address, for which ADDRESS of 24 bytes is used. */
const char *report_frame_name(char *address, const struct profile_frame *frame);
/* VALUE as "1,234,567" in TEXT of 32 bytes, which is returned. */
const char *report_grouped(char *text, uint64_t value);

/* The triggers of a flight recording: lines that start with '#', none for other recordings; or an
 * object, null for other recordings, as a new reference (NULL without memory). */
void report_flight_text(const struct perf_data_summary *summary, FILE *to);
json_t *report_flight_json(const struct perf_data_summary *summary);
/* TIME of the samples' clock as CLOCK_REALTIME, ns; 0 if the file does not relate the two. */
uint64_t report_wall_time(const struct perf_data_summary *summary, uint64_t time);

#endif
