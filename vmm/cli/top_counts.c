/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_counts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/exit_counter.h"
#include "vmm/cli/wall_times.h"

struct reading {
	struct exit_rows exits; /* by vCPU */
	struct vcpu_times_rows times;
	uint64_t at; /* ns of CLOCK_MONOTONIC */
};

struct top_counts {
	struct vmm_process *process;
	struct exit_counter *counter; /* NULL: BPF does not work here */
	char missing[ERROR_MESSAGE_SIZE];
	struct reading last;
};

static void reading_free(struct reading *reading)
{
	free(reading->exits.rows);
	vcpu_times_free(&reading->times);
	*reading = (struct reading){ 0 };
}

/* Exits are counted by process, so not those of one of its VMs. */
static int open_counter(struct top_counts *counts)
{
	int error;

	if (counts->process->vms > 1)
		return error_set(-ENOTSUP, "the process has several VMs");
	error = exit_counter_open(&counts->counter, counts->process->pid, false);
	return error ? error : exit_counter_follow(counts->counter, counts->process);
}

static int take_reading(struct top_counts *counts, struct reading *reading)
{
	int error;

	*reading = (struct reading){ .at = clock_ns(CLOCK_MONOTONIC) };
	if (!counts->counter) {
		vmm_process_scan(counts->process);
		return vcpu_times_read_proc(counts->process, &reading->times);
	}
	error = exit_counter_times(counts->counter, &reading->times);
	if (!error)
		error = exit_counter_read(counts->counter, &reading->exits);
	if (error)
		reading_free(reading);
	else
		exit_rows_merge(&reading->exits, true);
	return error;
}

int top_counts_open(struct top_counts **result, pid_t pid, int vm)
{
	struct top_counts *counts = calloc(1, sizeof(*counts));
	int error;

	if (!counts)
		return error_set(-ENOMEM, "no memory for the counts of process %d", pid);
	error = vmm_process_open(&counts->process, pid, vm);
	if (error) {
		top_counts_close(counts);
		return error;
	}
	if (open_counter(counts)) {
		snprintf(counts->missing, sizeof(counts->missing), "%s", error_message());
		exit_counter_close(counts->counter);
		counts->counter = NULL;
	} else if (exit_counter_missing(counts->counter)) {
		snprintf(counts->missing, sizeof(counts->missing), "%s",
			 exit_counter_missing(counts->counter));
	}
	error = take_reading(counts, &counts->last);
	if (error)
		top_counts_close(counts);
	else
		*result = counts;
	return error;
}

void top_counts_close(struct top_counts *counts)
{
	if (!counts)
		return;
	reading_free(&counts->last);
	exit_counter_close(counts->counter);
	vmm_process_close(counts->process);
	free(counts);
}

static json_int_t exits_of(const struct exit_rows *exits, unsigned int vcpu)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < exits->count; i++)
		sum += exits->rows[i].counts.vcpu == vcpu ? exits->rows[i].counts.count : 0;
	return (json_int_t)sum;
}

static json_t *vcpus_json(const struct top_counts *counts, const struct reading *since)
{
	json_t *vcpus = json_array();

	for (size_t i = 0; i < since->times.count; i++) {
		const struct vcpu_times *times = &since->times.rows[i];
		json_t *vcpu = wall_times_json(times, exit_counter_detail(counts->counter));

		json_object_set_new(vcpu, "vcpu", json_integer(times->vcpu));
		if (exit_counter_detail(counts->counter) == VCPU_TIMES_ALL)
			json_object_set_new(vcpu, "exits",
					    json_integer(exits_of(&since->exits, times->vcpu)));
		json_array_append_new(vcpus, vcpu);
	}
	return vcpus;
}

static int compare_counts(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->counts.count != other->counts.count
		       ? (one->counts.count < other->counts.count ? 1 : -1)
		       : (one->reason < other->reason ? -1 : one->reason > other->reason);
}

static json_t *exits_json(struct exit_rows *exits)
{
	json_t *rows = json_array();
	char name[EXIT_NAME_SIZE];

	exit_rows_merge(exits, false);
	if (exits->count)
		qsort(exits->rows, exits->count, sizeof(*exits->rows), compare_counts);
	for (size_t i = 0; i < exits->count; i++) {
		const struct exit_counts *counts = &exits->rows[i].counts;

		json_array_append_new(
			rows, json_pack("{s:s, s:I}", "reason",
					exit_reason_name(counts->isa, exits->rows[i].reason, name),
					"exits", (json_int_t)counts->count));
	}
	return rows;
}

int top_counts_report(struct top_counts *counts, json_t *object)
{
	struct reading now, *last = &counts->last;
	int error = take_reading(counts, &now);

	if (error)
		return error;
	exit_rows_subtract(&now.exits, &last->exits);
	vcpu_times_subtract(&now.times, &last->times);
	json_object_set_new(object, "seconds", json_real((double)(now.at - last->at) / 1e9));
	json_object_set_new(object, "vcpus", vcpus_json(counts, &now));
	json_object_set_new(object, "exits", exits_json(&now.exits));
	if (*counts->missing)
		json_object_set_new(object, "missing", json_string(counts->missing));
	reading_free(&now);
	reading_free(last);
	return take_reading(counts, last);
}
