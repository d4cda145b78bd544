/* SPDX-License-Identifier: Apache-2.0 */
/* Samples with whole callchains, as perf script tells them. Main thread only. */
#ifndef KVMSCOPE_TESTS_RIG_PERF_SCRIPT_H
#define KVMSCOPE_TESTS_RIG_PERF_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#define SCRIPT_DEPTH_MAX 64 /* frames that are kept */

struct script_frame {
	unsigned long long address; /* in the image, where it is known */
	char symbol[128];           /* "[unknown]" */
	char image[128];            /* path; "[unknown]" */
};

struct script_sample {
	char comm[32];
	unsigned int tid;
	double weight; /* its period, ns */
	size_t depth;
	struct script_frame frames[SCRIPT_DEPTH_MAX]; /* innermost first */
};

/* Was it taken in user space? */
bool script_sample_is_user(const struct script_sample *sample);

/*
 * Tells SEE of each line that COMMAND prints, which a shell runs, with the newline; it may write to
 * it. A command that fails is a failure of the test.
 */
void each_line(const char *command, void (*see)(void *context, char *line), void *context);

/*
 * Tells SEE of each sample of the recording FILE, perf being run by a shell behind ENVIRONMENT
 * with the further OPTIONS ("--symfs DIR"). What goes wrong is a failure of the test.
 */
void perf_script_read(const char *environment, const char *file, const char *options,
		      void (*see)(void *context, const struct script_sample *sample),
		      void *context);

#endif
