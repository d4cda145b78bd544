// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/cgroup_names.h"

#include <assert.h>
#include <stdlib.h>

#define PLACES 16384u

struct cgroup_names {
	uint64_t places[PLACES]; /* ids are given one after the other: the low bits tell them apart
				  */
};

struct cgroup_names *cgroup_names_new(void)
{
	return calloc(1, sizeof(struct cgroup_names));
}

void cgroup_names_free(struct cgroup_names *names)
{
	free(names);
}

bool cgroup_names_due(struct cgroup_names *names, uint64_t id)
{
	uint64_t *place = &names->places[id % PLACES];

	assert(id);
	if (*place == id)
		return false;
	*place = id;
	return true;
}
