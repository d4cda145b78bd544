/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a profile in pprof's format, gzipped, for `go tool pprof` and Grafana Pyroscope
 * (proto/profile.proto of github.com/google/pprof). */
#ifndef KVMSCOPE_REPORT_PPROF_H
#define KVMSCOPE_REPORT_PPROF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/report/profile_stacks.h"

struct pprof_options {
	bool one_vcpu; /* only samples of VCPU; UINT32_MAX: of unknown vCPU */
	uint32_t vcpu;
	/*
	 * For stores such as Grafana Pyroscope, which make a series of each set of labels and drop
	 * frames without a function: no labels; the process becomes the outermost frame; an
	 * unsymbolized frame gets a function named after its image, in brackets.
	 */
	bool for_store;
	uint64_t from, until; /* ns since 1970, the profile's time; 0: from the recording's start */
};

/*
 * Writes all events of PROFILE. A clock has two values, samples/count and cpu/nanoseconds; any
 * other event has its weight under its name. Labels are comm, app, cgroup, container, pid and vcpu,
 * if known. Inlined functions are lines of one location with the function they are inlined into.
 * Unsymbolized frames have their address (unless FOR_STORE); symbolized ones have none, because
 * each stands for all samples in its function. Mappings have build ids. OPTIONS may be NULL. 0,
 * -ENOMEM or a negative errno of writing.
 */
int pprof_write(const struct profile *profile, const struct pprof_options *options, FILE *to);

#endif
