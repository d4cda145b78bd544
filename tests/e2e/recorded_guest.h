/* SPDX-License-Identifier: Apache-2.0 */
/* A perf.data file of a fake guest with two vCPUs, whose symbols are in the build-id cache. */
#ifndef KVMSCOPE_TESTS_E2E_RECORDED_GUEST_H
#define KVMSCOPE_TESTS_E2E_RECORDED_GUEST_H

#include "tests/e2e/named_guest.h"
#include "vmm/perf_data/perf_data_writer.h"

#define RECORDED_SAMPLES 3000 /* half of them on each vCPU; 17 more are reported as lost */

/* COMM is the name of vCPU 0's thread; vCPU 1's is "vcpu 1". Ended by named_guest_end(). */
void recorded_guest_begin(struct named_guest *named, const char *comm,
			  enum perspective perspective);

/* The same guest with the events cpu-clock, kvm:exit (a tenth of the samples) and kvm:off-cpu
 * (another tenth). */
void recorded_guest_begin_outside(struct named_guest *named);

/* Writes kvmscope export's FILE in HOME, with OPTIONS; fails the test on errors. */
void recorded_guest_export(const struct named_guest *named, const char *file, const char *options);

#endif
