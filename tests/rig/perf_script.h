/* SPDX-License-Identifier: Apache-2.0 */
/* Samples with whole call chains, as perf script prints them. Main thread only. */
#ifndef KVMSCOPE_TESTS_RIG_PERF_SCRIPT_H
#define KVMSCOPE_TESTS_RIG_PERF_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#define SCRIPT_DEPTH_MAX 64 /* maximum number of stored frames */

struct script_frame {
	unsigned long long address; /* in the image, if that is known */
	char symbol[128];           /* or "[unknown]" */
	char image[128];            /* path; or "[unknown]" */
};

struct script_sample {
	char comm[32];
	unsigned int tid;
	double weight; /* its period, ns */
	size_t depth;
	struct script_frame frames[SCRIPT_DEPTH_MAX]; /* innermost first */
};

/* True for a sample in user space. */
bool script_sample_is_user(const struct script_sample *sample);

/*
 * Calls SEE for each line, including the newline, that COMMAND prints, which is run by a shell; SEE
 * may modify it. If the command fails, so does the test.
 */
void each_line(const char *command, void (*see)(void *context, char *line), void *context);

/*
 * Calls SEE for each sample of the recording FILE. perf is run by a shell after ENVIRONMENT, with
 * additional OPTIONS ("--symfs DIR"). Errors fail the test.
 */
void perf_script_read(const char *environment, const char *file, const char *options,
		      void (*see)(void *context, const struct script_sample *sample),
		      void *context);

#endif
