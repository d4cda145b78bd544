/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile in pprof's form, gzipped, as `go tool pprof` and Grafana Pyroscope
 * read it (proto/profile.proto of github.com/google/pprof).
 */
#ifndef KVMSCOPE_REPORT_PPROF_H
#define KVMSCOPE_REPORT_PPROF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/report/profile_stacks.h"

struct pprof_options {
	bool one_vcpu; /* only the samples of VCPU, which is UINT32_MAX for those of which it was
			* not recorded
			*/
	uint32_t vcpu;
	/*
	 * For stores like Grafana Pyroscope. They make a series of each set of labels, while a
	 * guest may have any number of processes: there are no labels, and a process is the
	 * outermost frame of its stacks. They leave out what has no function: a frame without a
	 * symbol has one that is called as its image is, in brackets.
	 */
	bool for_store;
	uint64_t from, until; /* ns since 1970 that the profile is of; 0: it begins when the
				 recording did */
};

/*
 * All events of PROFILE, as OPTIONS (NULL: of all vCPUs) want it. A clock has two values:
 * samples/count and cpu/nanoseconds; of any other event there is its weight, by its name. Labels of
 * a sample: comm, app, pid, vcpu, as far as they are known. Functions that were inlined are lines
 * of one location with what they were inlined into. A frame without a symbol has its address
 * (unless FOR_STORE), one with a symbol has none: it stands for all that were in the function. 0,
 * -ENOMEM or a negative errno of writing.
 */
int pprof_write(const struct profile *profile, const struct pprof_options *options, FILE *to);

#endif
