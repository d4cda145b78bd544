/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of an address in a file of the guest's, against that file's own symbol table, and
 * that of a separate file where it is stripped. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_IMAGE_TRUTH_H
#define KVMSCOPE_TESTS_RIG_IMAGE_TRUTH_H

#include <stdbool.h>

#include "tests/rig/perf_script.h"

enum image_truth {
	IMAGE_TRUTH_RIGHT,    /* it is called as in a table */
	IMAGE_TRUTH_MISSING,  /* it has no name, and the file's own table has one */
	IMAGE_TRUTH_STRIPPED, /* it has no name, and the separate file's table has one */
	IMAGE_TRUTH_NONE,     /* nobody has one */
	IMAGE_TRUTH_WRONG,
	IMAGE_TRUTHS
};

/*
 * FRAME is the innermost one, whose image is a file below FILES ("DIR" of --symfs) or the vDSO;
 * separate files are in mnt/debug there (tests/rig/perf-disk). BY_PERF: perf had the file itself,
 * and lets a function of assembly, which has no size, reach up to the next one, and stubs of PLTs
 * are what it says of them. Files are read once.
 */
enum image_truth image_truth_of(const char *files, const struct script_frame *frame, bool by_perf);

/* Has the file's own table a name for FRAME? */
bool image_truth_has_name(const char *files, const struct script_frame *frame);

/* Prints, for each image that was asked for since the last call, what came of it. */
void image_truth_print(const char *what);

#endif
