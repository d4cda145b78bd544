/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a recording of tests/rig/guest/remap.c, read by perf: each image has its code at a
 * different offset in the page, so a sample's own address identifies the running image.
 */
#ifndef KVMSCOPE_TESTS_RIG_REMAP_TRUTH_H
#define KVMSCOPE_TESTS_RIG_REMAP_TRUTH_H

#define REMAP_IMAGES 9 /* from 1; up to 4 they are mapped, the others are executed */
/* It runs for 5 ms, so its samples are processed long after its exit. */
#define REMAP_BRIEF 8

struct remap_truth {
	unsigned long right, wrong, unknown;
	unsigned long of_image[REMAP_IMAGES]; /* correctly attributed */
	unsigned long of_path[REMAP_IMAGES];  /* all that perf attributes to the image */
	unsigned long named, misnamed;        /* by the process's name, of programs */
	unsigned long functions;              /* correctly attributed and symbolized by perf */
};

/* "alpha" and so on; NULL for 0. */
extern const char *const remap_images[REMAP_IMAGES];

/* From perf script of FILE, with the build-id cache in HOME. The first wrong sample is printed. */
struct remap_truth remap_truth_read(const char *file, const char *home);

#endif
