/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of the tasks of tests/rig/guest/tasks.c, against an oracle in the samples
 * themselves: tasks have the function run_NAME in their callchains and are called "NAME-TID"; their
 * code is at addresses that nothing else has. Directories are those of recordings, with perf.data
 * and perf's build-id cache. What goes wrong is a failure of the test, and WHAT names the recording
 * in what is printed. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_TASKS_TRUTH_H
#define KVMSCOPE_TESTS_RIG_TASKS_TRUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/report/profile_stacks.h"

/* The program, and the copies of it: each a build of its own. */
#define TASKS_IMAGES 5

/* Samples of the tasks that a recording of theirs has at least. */
#define TASKS_ENOUGH 300

struct tasks_tally {
	unsigned long told, known, wrong;         /* told: whose owner the chain tells */
	unsigned long images_right, images_wrong; /* addresses of theirs */
	unsigned long code, code_right;           /* samples in the program's own code */
	unsigned long in[TASKS_IMAGES];           /* of those, in each */
	unsigned long named[TASKS_IMAGES]; /* of those, by a function's name, which is right */
};

/* By perf: adds up whose the samples are, and which images they have addresses in. */
void tasks_truth_count_samples(const char *directory, struct tasks_tally *tally);

/* The same of samples in the program's code, whose addresses are nobody else's. */
void tasks_truth_count_code(const char *directory, struct tasks_tally *tally);

/* The same of those that have a function's name. */
void tasks_truth_count_names(const char *directory, struct tasks_tally *tally);

/*
 * All are in the guest's memory as a whole, whatever file system they are of, and whether it has a
 * name for them: each by itself, for none has the build id of another. Of few samples, those of
 * before their names are read are many. Without ALL there are some of each.
 */
void tasks_truth_check_named(const char *what, const struct tasks_tally *tally, bool all);

/* All of that, of a recording in which every task and every image is told. */
void tasks_truth_check(const char *what, const char *directory);

/* By our own reader: each task is in the control group that it has been put into. */
void tasks_truth_check_cgroups(const char *what, const char *directory);

/* Of a task by the name that it took, behind which its id stands; false: it is none of them. */
bool tasks_truth_find(const struct profile_stack *stack, char *name, size_t size);

/* The image of the task NAME's program: what /proc/PID/maps says of it. */
const char *tasks_truth_image(const char *name);

#endif
