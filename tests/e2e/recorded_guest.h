/* SPDX-License-Identifier: Apache-2.0 */
/* A perf.data file of a fake guest with two vCPUs, and its names in a build-id cache, both in a home of the
 * test's own. */
#ifndef KVMSCOPE_TESTS_E2E_RECORDED_GUEST_H
#define KVMSCOPE_TESTS_E2E_RECORDED_GUEST_H

#include "tests/unit/fake_guest.h"
#include "vmm/profile/perf_data_writer.h"

#define RECORDED_SAMPLES 3000 /* half of them on each vCPU; 17 more are told to be lost */

struct recorded_guest {
	char home[64]; /* is HOME until recorded_guest_free() */
	char former_home[4096];
	char path[128]; /* of the file */
	struct fake_guest guest;
};

/* COMM is the name of vCPU 0's thread; that of vCPU 1 is "vcpu 1". */
void recorded_guest_make(struct recorded_guest *recorded, const char *comm, enum perspective perspective);
void recorded_guest_free(struct recorded_guest *recorded);

#endif
