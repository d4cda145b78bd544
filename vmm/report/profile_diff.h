/* SPDX-License-Identifier: Apache-2.0 */
/* The difference of two profiles by function, as perf diff prints it. */
#ifndef KVMSCOPE_REPORT_PROFILE_DIFF_H
#define KVMSCOPE_REPORT_PROFILE_DIFF_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

enum profile_diff_order {
	PROFILE_DIFF_BY_DELTA, /* the largest difference first */
	PROFILE_DIFF_BY_BASELINE,
};

/*
 * Compares the chosen event of both profiles: the share of each function itself. Functions of one
 * name in images of one name are the same; an unsymbolized image is one row, because its addresses
 * differ between boots. 0, -ENOMEM or a negative errno of writing.
 */
int profile_diff_print(const struct profile *baseline, const struct profile *other,
		       enum profile_diff_order order, FILE *to);

#endif
