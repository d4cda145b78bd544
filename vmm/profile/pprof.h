/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile in pprof's form, gzipped, as `go tool pprof` and Grafana Pyroscope
 * read it (proto/profile.proto of github.com/google/pprof).
 */
#ifndef KVMSCOPE_PROFILE_PPROF_H
#define KVMSCOPE_PROFILE_PPROF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/profile/profile.h"

struct pprof_options {
	bool one_vcpu; /* only the samples of VCPU, which is UINT32_MAX for those of which it was not recorded
			*/
	uint32_t vcpu;
	/*
	 * A process is the outermost frame of its stacks, and there are no labels: for stores that make a
	 * series of each set of labels, while a guest may have any number of processes.
	 */
	bool tasks_as_roots;
	uint64_t from, until; /* ns since 1970 that the profile is of; 0: it begins when the recording did */
};

/*
 * All events of PROFILE, as OPTIONS (NULL: of all vCPUs) want it. A clock has two values: samples/count and
 * cpu/nanoseconds; of any other event there is its weight, by its name. Labels of a sample: comm, app, pid,
 * vcpu, as far as they are known. Functions that were inlined
 * are lines of one location with what they were inlined into. A frame without a symbol has its address, one
 * with a symbol has none: it stands for all that were in the function. 0, -ENOMEM or a negative errno of
 * writing.
 */
int pprof_write(const struct profile *profile, const struct pprof_options *options, FILE *to);

#endif
