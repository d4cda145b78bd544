/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/recorded_times.h"

#include <stdio.h>

/* The time of vCPU TIMES in each state of TO, whose names are set if NAMES. */
static uint32_t list(const struct vcpu_times *times, const struct vcpu_times *sum,
		     enum vcpu_times_detail detail, uint64_t *ns, char (*names)[24])
{
	double estimate = vcpu_times_guest_user(times);
	uint64_t user = estimate > 0 ? (uint64_t)estimate : 0;
	bool divided = vcpu_times_guest_user(sum) >= 0;
	uint32_t count = 0;

	for (unsigned int state = 0; state < VCPU_STATES; state++) {
		if (!vcpu_times_have(detail, state) && !sum->ns[state])
			continue;
		if (state == VCPU_GUEST && divided) {
			snprintf(names[count], sizeof(names[count]), "guest_user_estimated");
			ns[count++] = user;
		}
		snprintf(names[count], sizeof(names[count]), "%s",
			 state == VCPU_GUEST && divided ? "guest_kernel_estimated"
							: vcpu_state_name(state));
		ns[count++] = times->ns[state] - (state == VCPU_GUEST && divided ? user : 0);
	}
	return count;
}

void recorded_times(struct perf_data_times *to, const struct vcpu_times_rows *rows,
		    enum vcpu_times_detail detail)
{
	struct vcpu_times sum = vcpu_times_sum(rows);

	_Static_assert(VCPU_STATES < PERF_DATA_TIME_STATES, "room for the guest's two");
	*to = (struct perf_data_times){ 0 };
	if (!rows->count)
		return;
	to->states = list(&sum, &sum, detail, to->sum, to->names);
	for (size_t i = 0; i < rows->count && i < PERF_DATA_TIME_VCPUS; i++) {
		to->rows[i].vcpu = rows->rows[i].vcpu;
		list(&rows->rows[i], &sum, detail, to->rows[i].ns, to->names);
		to->vcpus++;
	}
}
