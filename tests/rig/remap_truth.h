/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording of tests/rig/guest/remap.c, read by perf, against the truth: each
 * image has its code at another place of the page, so that a sample's own
 * address tells which image was running.
 */
#ifndef KVMSCOPE_TESTS_RIG_REMAP_TRUTH_H
#define KVMSCOPE_TESTS_RIG_REMAP_TRUTH_H

#define REMAP_IMAGES 9 /* from 1 on; to 4 they are mapped, then executed */
/* It lives 5 ms: its samples come to be looked at when it is long dead. */
#define REMAP_BRIEF 8

struct remap_truth {
	unsigned long right, wrong, untold;
	unsigned long of_image[REMAP_IMAGES]; /* right ones */
	unsigned long of_path[REMAP_IMAGES];  /* all that perf says are in it */
	unsigned long named, misnamed;        /* of programs, by the process's name */
	unsigned long functions;              /* right ones whose function perf names */
};

/* "alpha" and so on; NULL for 0. */
extern const char *const remap_images[REMAP_IMAGES];

/* By perf script of FILE, with the build-id cache in HOME. The first wrong one is shown. */
struct remap_truth remap_truth_read(const char *file, const char *home);

#endif
