/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the attribution of samples of tests/rig/guest/tasks.c with the samples themselves: tasks
 * have the function run_NAME in their call chains and are called "NAME-TID"; their code is at
 * unique addresses. Directories are those of recordings, with perf.data and perf's build-id cache.
 * Mismatches fail the test, and WHAT names the recording in the output. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_TASKS_TRUTH_H
#define KVMSCOPE_TESTS_RIG_TASKS_TRUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/report/profile_stacks.h"

/* The program, and the copies of it: each has its own build ID. */
#define TASKS_IMAGES 5

/* The minimum number of samples of the tasks in a recording. */
#define TASKS_ENOUGH 300

struct tasks_tally {
	unsigned long identified, known, wrong;   /* identified: the chain identifies the task */
	unsigned long images_right, images_wrong; /* addresses in tasks */
	unsigned long code, code_right;           /* samples in the program's own code */
	unsigned long in[TASKS_IMAGES];           /* those in each image */
	unsigned long named[TASKS_IMAGES]; /* those with a function's symbol, which is correct */
};

/* From perf script: counts samples by their task, and addresses by their image. */
void tasks_truth_count_samples(const char *directory, struct tasks_tally *tally);

/* The same for samples in the program's code, which is at unique addresses. */
void tasks_truth_count_code(const char *directory, struct tasks_tally *tally);

/* The same for those with a function's symbol. */
void tasks_truth_count_symbols(const char *directory, struct tasks_tally *tally);

/*
 * All images are completely in guest memory, whatever their file system and path: each must be read
 * on its own, because its build ID is unique. With few samples, those before the symbols were read
 * are a large part. Without ALL, some samples of each image suffice.
 */
void tasks_truth_check_named(const char *what, const struct tasks_tally *tally, bool all);

/* All these checks, for a recording in which every task and every image is known. */
void tasks_truth_check(const char *what, const char *directory);

/* With our own reader: each task is in its control group. */
void tasks_truth_check_cgroups(const char *what, const char *directory);

/* Splits the name of a task, which ends with its ID; false: the name is not that of a task. */
bool tasks_truth_find(const struct profile_stack *stack, char *name, size_t size);

/* The image of the program of task NAME, as in /proc/PID/maps. */
const char *tasks_truth_image(const char *name);

#endif
