/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/file_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/thread_check.h"
#include "vmm/record/file_state_parts.h"
#include "vmm/record/process_cgroups.h"

struct file_state {
	struct file_state_options options;
	struct thread_check thread;
	struct file_tasks *tasks;
	struct file_mappings *mappings;
	struct file_jit *jit;
	struct process_cgroups *cgroups; /* as sources reported them */
	bool reports;                    /* a source has reported mappings into the file */
};

/* Writes RECORD, and updates the state of run-time code by it. */
static int write_record(struct file_state *state, const struct sideband *record)
{
	int error = state->options.record(state->options.context, record);

	return error ? error : file_jit_written(state->jit, record);
}

/* Writes a record of what a sample carried. */
static int write_carried(void *context, const struct sideband *record)
{
	struct file_state *state = context;

	if (record->type == SIDEBAND_MMAP && state->reports && state->options.mapped)
		state->options.mapped(state->options.mapped_context, (const void *)record);
	return write_record(state, record);
}

struct file_state *file_state_new(const struct file_state_options *options)
{
	struct file_state *state = calloc(1, sizeof(*state));

	if (!state)
		return NULL;
	state->options = *options;
	state->tasks = file_tasks_new();
	state->mappings = file_mappings_new(options->account, options->images,
					    &(struct file_emit){ write_carried, state });
	state->jit = file_jit_new(options->account,
				  &(struct file_emit){ options->record, options->context });
	state->cgroups = process_cgroups_new(options->account);
	if (state->tasks && state->mappings && state->jit && state->cgroups)
		return state;
	file_state_free(state);
	return NULL;
}

void file_state_free(struct file_state *state)
{
	if (!state)
		return;
	file_tasks_free(state->tasks);
	file_mappings_free(state->mappings);
	file_jit_free(state->jit);
	process_cgroups_free(state->cgroups);
	free(state);
}

bool file_state_has_reports(const struct file_state *state)
{
	return state->reports;
}

uint64_t file_state_unnamed_roots(const struct file_state *state)
{
	return file_tasks_refused_roots(state->tasks);
}

/* --- tasks ------------------------------------------------------------------------ */

static int write_fork(struct file_state *state, uint64_t time, uint16_t flags,
		      const struct perf_data_task *task, uint32_t parent)
{
	struct sideband_fork fork = {
		.head = sideband_head(SIDEBAND_FORK, sizeof(fork), time, task->pid),
		.parent_pid = parent,
		.parent_tid = parent,
	};

	fork.head.flags = flags;
	fork.head.tid = task->tid;
	return state->options.record(state->options.context, &fork.head);
}

static int write_name(struct file_state *state, uint64_t time, const struct perf_data_task *task,
		      const char *name)
{
	if (!file_tasks_name_due(state->tasks, task->pid, task->tid, time, name))
		return 0;
	return state->options.comm(state->options.context, time, task, name);
}

/* Readers begin a thread anew, without a name of its own, at its FORK. */
static int start_thread(struct file_state *state, const struct sample *sample, uint32_t tid,
			uint32_t parent)
{
	file_tasks_name_due(state->tasks, sample->pid, tid, sample->time, "");
	return write_fork(state, sample->time, SIDEBAND_FORK_EARLIER,
			  &(struct perf_data_task){ sample->pid, tid, true }, parent);
}

/* perf gives a new process its parent's name, so its own has to follow: its first thread may never
 * be sampled. */
static int name_process(struct file_state *state, const struct sample *sample)
{
	char name[SAMPLE_COMM_SIZE];

	snprintf(name, sizeof(name), "%.*s", SAMPLE_COMM_SIZE - 1, sample->process_comm);
	return write_name(state, sample->time,
			  &(struct perf_data_task){ sample->pid, sample->pid, true }, name);
}

/*
 * The parent of the sample's process, and that the thread belongs to it, as perf writes for tasks
 * that run when a recording begins. The process comes first: its FORK makes readers forget the
 * previous process of that id.
 */
static int start_tasks(struct file_state *state, const struct sample *sample)
{
	int error = 0;

	if (state->reports || !sample->started || sample->pid >= SAMPLE_TASK_LIMIT ||
	    sample->tid >= SAMPLE_TASK_LIMIT)
		return 0;
	if (file_tasks_start_due(state->tasks, sample->pid, sample->started)) {
		file_mappings_begin(state->mappings, sample->pid);
		error = start_thread(state, sample, sample->pid, sample->parent);
	}
	if (error || sample->tid == sample->pid)
		return error;
	error = name_process(state, sample);
	if (!error && file_tasks_start_due(state->tasks, sample->tid, sample->started))
		error = start_thread(state, sample, sample->tid, sample->pid);
	return error;
}

/* perf has one idle task, "swapper"; the guest has one per CPU, "swapper/0" and so on. */
static int name_task(struct file_state *state, const struct sample *sample,
		     const struct perf_data_task *task)
{
	char name[SAMPLE_COMM_SIZE];

	if (!task->of_guest)
		snprintf(name, sizeof(name), "vcpu %u", sample->vcpu);
	else if (!task->pid)
		snprintf(name, sizeof(name), "swapper");
	else
		snprintf(name, sizeof(name), "%.*s", SAMPLE_COMM_SIZE - 1, sample->comm);
	return write_name(state, sample->time, task, name);
}

static int start_root(struct file_state *state, const struct sample *sample,
		      const struct perf_data_task *task)
{
	char name[SAMPLE_COMM_SIZE];
	int error = write_fork(state, sample->time, 0, task, state->options.unknown_pid);

	file_tasks_root_name(sample->cr3, name);
	return error ? error
		     : state->options.comm(state->options.context, sample->time, task, name);
}

/* In the host's perspective an unknown task is the vCPU's thread, which is not of the guest. */
static uint32_t root_pid(struct file_state *state, const struct sample *sample,
			 const struct perf_data_task *task, bool *first)
{
	bool unknown = !task->of_guest && task->pid == SAMPLE_TASK_LIMIT;

	if (!state->options.page_tables || !unknown || sample->flags & SAMPLE_HOST)
		return 0;
	return file_tasks_root_pid(state->tasks, sample->cr3, first);
}

static int write_task(struct file_state *state, const struct sample *sample,
		      struct perf_data_task *task)
{
	bool first;
	uint32_t pid = root_pid(state, sample, task, &first);

	if (!pid)
		return name_task(state, sample, task);
	*task = (struct perf_data_task){ pid, pid, true };
	return first ? start_root(state, sample, task) : 0;
}

/* --- cgroups ---------------------------------------------------------------------- */

/* The cgroup that the sample carries, unless it belongs to the table of an ended kernel. In the
 * root of the unified hierarchy are also all processes of version 1: there a report counts. */
static uint64_t cgroup_of(const struct file_state *state, const struct sample *sample,
			  const struct guest_cgroups *cgroups)
{
	bool current = cgroups && guest_cgroups_generation(cgroups) == sample->cgroups;
	uint64_t carried = current ? sample->cgroup : 0;
	uint64_t reported = process_cgroups_of(state->cgroups, sample->pid);
	const char *path = carried ? guest_cgroups_path(cgroups, carried) : NULL;

	if (!carried || (path && !strcmp(path, "/") && process_cgroups_id_is_made(reported)))
		return reported;
	return carried;
}

static int write_cgroup(struct file_state *state, uint64_t time, uint64_t id, const char *path)
{
	if (!id || !path || !file_tasks_cgroup_due(state->tasks, id))
		return 0;
	return state->options.cgroup(state->options.context, time, id, path);
}

/* --- samples and events ----------------------------------------------------------- */

static int write_jit(struct file_state *state, const struct attributed_sample *attributed,
		     struct jit_code *code)
{
	const struct sample *sample = attributed->sample;

	if (!code || sample->pid == SAMPLE_TASK_UNKNOWN || !sample->pid)
		return 0;
	return file_jit_sample(state->jit, code, attributed);
}

int file_state_sample(struct file_state *state, const struct attributed_sample *attributed,
		      const struct file_state_guest *guest, struct file_state_entry *entry)
{
	const struct guest_cgroups *cgroups = guest ? guest->cgroups : NULL;
	const struct sample *sample = attributed->sample;
	int error;

	THREAD_CHECK(&state->thread);
	entry->cgroup = cgroup_of(state, sample, cgroups);
	entry->late = false;
	error = start_tasks(state, sample);
	if (!error)
		error = write_task(state, sample, &entry->task);
	if (!error && entry->cgroup && cgroups)
		error = write_cgroup(state, sample->time, entry->cgroup,
				     guest_cgroups_path(cgroups, entry->cgroup));
	if (!error)
		error = file_mappings_sample(state->mappings, attributed,
					     state->options.sources || state->reports,
					     &entry->late);
	if (!error && !entry->late)
		error = write_jit(state, attributed, guest ? guest->jit : NULL);
	return error;
}

/* An event of a source, at the time that it has in the file. */
static int write_event(struct file_state *state, const struct sideband *record)
{
	const struct sideband_comm *comm = (const void *)record;

	state->reports |= record->type == SIDEBAND_MMAP;
	file_mappings_reported(state->mappings, record);
	if (record->type == SIDEBAND_FORK)
		file_tasks_fork(state->tasks, record->pid, record->tid, record->time);
	if (record->type == SIDEBAND_COMM &&
	    !file_tasks_name_due(state->tasks, record->pid, record->tid, record->time,
				 comm->comm) &&
	    !(record->flags & SIDEBAND_COMM_EXEC))
		return 0;
	return write_record(state, record);
}

static int write_inexact_event(struct file_state *state, const struct sideband *record)
{
	union {
		struct sideband head;
		struct sideband_mmap mmap;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} moved;
	int error;

	assert(record->size <= sizeof(moved));
	memcpy(&moved, record, record->size);
	error = file_mappings_move(state->mappings, &moved.head);
	if (!error)
		error = write_event(state, &moved.head);
	if (error || record->type != SIDEBAND_MMAP || moved.head.time == record->time)
		return error;
	return file_mappings_restate(state->mappings, &moved.mmap, record->time);
}

int file_state_sideband(struct file_state *state, const struct sideband *record)
{
	const struct sideband_cgroup *cgroup = (const void *)record;

	THREAD_CHECK(&state->thread);
	process_cgroups_apply(state->cgroups, record);
	if (record->type == SIDEBAND_LOST)
		return 0; /* readers get it with the counts of losses */
	if (record->type == SIDEBAND_CGROUP)
		return write_cgroup(state, record->time, process_cgroups_id(cgroup), cgroup->path);
	return record->time_error ? write_inexact_event(state, record) : write_event(state, record);
}
