/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flame graph: one self-contained HTML file, the page of vmm/report/web with the profile in it
 * (in the form of vmm/report/web/profile.js). It loads nothing from the network.
 */
#ifndef KVMSCOPE_REPORT_FLAME_GRAPH_H
#define KVMSCOPE_REPORT_FLAME_GRAPH_H

#include <stddef.h>
#include <stdio.h>

#include "vmm/report/folded.h"
#include "vmm/report/profile_stacks.h"

/* Writes the only event of PROFILE, with processes grouped by BY. 0, -ENOMEM or a negative errno of
 * writing. */
int flame_graph_write(const struct profile *profile, enum folded_group by, FILE *to);

/* The page without data, *SIZE bytes, not NUL-terminated. */
const char *flame_graph_page(size_t *size);

#endif
