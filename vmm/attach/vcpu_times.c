/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/vcpu_times.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/proc_files.h"

void vcpu_times_free(struct vcpu_times_rows *rows)
{
	free(rows->rows);
	*rows = (struct vcpu_times_rows){ 0 };
}

struct vcpu_times *vcpu_times_row(struct vcpu_times_rows *rows, unsigned int vcpu)
{
	size_t at = rows->count;

	while (at && rows->rows[at - 1].vcpu >= vcpu)
		at--;
	if (at < rows->count && rows->rows[at].vcpu == vcpu)
		return &rows->rows[at];
	if (array_reserve(&rows->rows, &rows->capacity, rows->count + 1))
		return NULL;
	memmove(&rows->rows[at + 1], &rows->rows[at], (rows->count++ - at) * sizeof(rows->rows[0]));
	rows->rows[at] = (struct vcpu_times){ .vcpu = vcpu };
	return &rows->rows[at];
}

void vcpu_times_subtract(struct vcpu_times_rows *rows, const struct vcpu_times_rows *earlier)
{
	for (size_t i = 0, before = 0; i < rows->count; i++) {
		while (before < earlier->count && earlier->rows[before].vcpu < rows->rows[i].vcpu)
			before++;
		if (before == earlier->count || earlier->rows[before].vcpu != rows->rows[i].vcpu)
			continue;
		for (unsigned int state = 0; state < VCPU_STATES; state++)
			rows->rows[i].ns[state] -= earlier->rows[before].ns[state];
		rows->rows[i].user_samples -= earlier->rows[before].user_samples;
		rows->rows[i].kernel_samples -= earlier->rows[before].kernel_samples;
	}
}

struct vcpu_times vcpu_times_sum(const struct vcpu_times_rows *rows)
{
	struct vcpu_times sum = { 0 };

	for (size_t i = 0; i < rows->count; i++) {
		for (unsigned int state = 0; state < VCPU_STATES; state++)
			sum.ns[state] += rows->rows[i].ns[state];
		sum.user_samples += rows->rows[i].user_samples;
		sum.kernel_samples += rows->rows[i].kernel_samples;
	}
	return sum;
}

bool vcpu_times_have(enum vcpu_times_detail detail, enum vcpu_state state)
{
	switch (state) {
	case VCPU_GUEST:
	case VCPU_KVM:
	case VCPU_VMM:
		return detail == VCPU_TIMES_ALL;
	case VCPU_RUNNING:
		return detail != VCPU_TIMES_ALL;
	case VCPU_HALTED:
	case VCPU_BLOCKED:
		return detail != VCPU_TIMES_OF_PROC;
	case VCPU_ASLEEP:
		return detail == VCPU_TIMES_OF_PROC;
	default:
		return state == VCPU_WAITING;
	}
}

#define SAMPLES_MIN 30

double vcpu_times_guest_user(const struct vcpu_times *times)
{
	double samples = (double)(times->user_samples + times->kernel_samples);

	return samples < SAMPLES_MIN
		       ? -1
		       : (double)times->ns[VCPU_GUEST] * (double)times->user_samples / samples;
}

const char *vcpu_state_name(enum vcpu_state state)
{
	static const char *const names[VCPU_STATES] = {
		[VCPU_GUEST] = "guest",     [VCPU_KVM] = "kvm",         [VCPU_VMM] = "vmm",
		[VCPU_RUNNING] = "running", [VCPU_WAITING] = "waiting", [VCPU_HALTED] = "halted",
		[VCPU_BLOCKED] = "blocked", [VCPU_ASLEEP] = "asleep",
	};

	return state < VCPU_STATES ? names[state] : "ended";
}

int vcpu_times_read_proc(const struct vmm_process *process, struct vcpu_times_rows *rows)
{
	*rows = (struct vcpu_times_rows){ 0 };
	for (size_t i = 0; i < process->vcpu_count; i++) {
		struct thread_cpu_times times;
		struct vcpu_times *row;

		if (!process->vcpus[i].tid ||
		    !thread_cpu_times_of(process->directory, process->vcpus[i].tid, &times))
			continue;
		row = vcpu_times_row(rows, process->vcpus[i].id);
		if (!row) {
			vcpu_times_free(rows);
			return error_set(-ENOMEM, "no memory for the times of vCPUs");
		}
		row->ns[VCPU_RUNNING] = times.ran;
		row->ns[VCPU_WAITING] = times.waited;
		/* Since the host's start: differences are right. */
		row->ns[VCPU_ASLEEP] = clock_ns(CLOCK_MONOTONIC) - times.ran - times.waited;
	}
	return rows->count || !process->vcpu_count
		       ? 0
		       : error_set(-ENOTSUP, "this kernel does not show how long threads ran "
					     "(/proc/PID/task/TID/schedstat)");
}
