/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile as one HTML file that needs nothing else: the page of
 * vmm/report/web with the profile inside, as vmm/report/web/profile.js
 * describes it. Opened, it asks no network for anything.
 */
#ifndef KVMSCOPE_REPORT_FLAME_GRAPH_H
#define KVMSCOPE_REPORT_FLAME_GRAPH_H

#include <stddef.h>
#include <stdio.h>

#include "vmm/report/folded.h"
#include "vmm/report/profile_stacks.h"

/* PROFILE has one event only; its processes stand by themselves, or in what BY says. 0, -ENOMEM or
 * a negative errno of writing. */
int flame_graph_write(const struct profile *profile, enum folded_group by, FILE *to);

/* The page around the data: *SIZE bytes, not a string. */
const char *flame_graph_page(size_t *size);

#endif
