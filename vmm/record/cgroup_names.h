/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths of cgroups a file already has: each is written when it is first needed. One thread at
 * a time.
 */
#ifndef KVMSCOPE_RECORD_CGROUP_NAMES_H
#define KVMSCOPE_RECORD_CGROUP_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_names;

/* NULL without memory. Of fixed size, whatever the guest makes up. */
struct cgroup_names *cgroup_names_new(void);
void cgroup_names_free(struct cgroup_names *names); /* NULL is a no-op */

/*
 * Is the path of cgroup ID, not 0, to be written? A yes counts as written. Of those that fall on
 * one place paths are written more often than need be.
 */
bool cgroup_names_due(struct cgroup_names *names, uint64_t id);

#endif
