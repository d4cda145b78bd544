/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of an address in a file of the guest's, against that file's own symbol table. Main thread
 * only. */
#ifndef KVMSCOPE_TESTS_IMAGE_TRUTH_H
#define KVMSCOPE_TESTS_IMAGE_TRUTH_H

#include <stdbool.h>

#include "tests/rig/perf_script.h"

enum image_truth {
	IMAGE_TRUTH_RIGHT,   /* it is called as in the table */
	IMAGE_TRUTH_MISSING, /* it has no name, and the table has one */
	IMAGE_TRUTH_NONE,    /* neither has one: the file is stripped of it */
	IMAGE_TRUTH_WRONG,
	IMAGE_TRUTHS
};

/* FRAME is the innermost one, whose image is a file below FILES ("DIR" of --symfs) or the vDSO. Files are
 * read once. */
enum image_truth image_truth_of(const char *files, const struct script_frame *frame);

/* Prints, for each image that was asked for since the last call, what came of it. */
void image_truth_print(const char *what);

#endif
