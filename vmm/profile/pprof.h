/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile in pprof's form, gzipped, as `go tool pprof` and Grafana Pyroscope
 * read it (proto/profile.proto of github.com/google/pprof).
 */
#ifndef KVMSCOPE_PROFILE_PPROF_H
#define KVMSCOPE_PROFILE_PPROF_H

#include <stdio.h>

#include "vmm/profile/profile.h"

/*
 * All events of PROFILE. A clock has two values: samples/count and cpu/nanoseconds; of any other event
 * there is its weight, by its name. Labels of a sample: comm, app, pid, vcpu, as far as they are known.
 * A frame without a symbol has its address, one with a symbol has none: it stands for all that were in
 * the function. 0, -ENOMEM or a negative errno of writing.
 */
int pprof_write(const struct profile *profile, FILE *to);

#endif
