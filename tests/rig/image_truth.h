/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the reported symbol of an address in a guest file with the file's own symbol table, and
 * with that of its separate debug file if it is stripped. Main thread only.
 */
#ifndef KVMSCOPE_TESTS_RIG_IMAGE_TRUTH_H
#define KVMSCOPE_TESTS_RIG_IMAGE_TRUTH_H

#include <stdbool.h>

#include "tests/rig/perf_script.h"

enum image_truth {
	IMAGE_TRUTH_RIGHT,    /* the symbol is in a table */
	IMAGE_TRUTH_MISSING,  /* unsymbolized, but the file's own table has a symbol */
	IMAGE_TRUTH_STRIPPED, /* unsymbolized, but the separate file's table has a symbol */
	IMAGE_TRUTH_NONE,     /* no table has a symbol */
	IMAGE_TRUTH_WRONG,
	IMAGE_TRUTHS
};

/*
 * FRAME is the innermost one; its image is a file below FILES (DIR of --symfs) or the vDSO.
 * Separate debug files are in mnt/debug there (tests/rig/perf-disk). BY_PERF: the symbol is from
 * perf with the file itself; perf extends an assembly function, which has no size, to the next one,
 * and its names of PLT stubs are accepted. Files are read once.
 */
enum image_truth image_truth_of(const char *files, const struct script_frame *frame, bool by_perf);

/* True if the file's own table has a symbol for FRAME. */
bool image_truth_has_name(const char *files, const struct script_frame *frame);

/* Prints the results for each image since the last call. */
void image_truth_print(const char *what);

#endif
