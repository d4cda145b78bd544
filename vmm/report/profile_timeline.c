/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "vmm/report/mapping_index.h"
#include "vmm/report/profile_image.h"

/* Fewer mappings are searched one after the other. */
#define INDEX_MIN 32
/* Most generations of processes whose mappings are inherited; ordinary guests have some ten. */
#define GENERATIONS_MAX 64

enum kind { KIND_MAP, KIND_COMM, KIND_EXEC, KIND_FORK };

/* The program of a child whose parent's program is unknown; later mappings do not change it. */
static const struct profile_image unknown_program;

struct record {
	uint64_t time;
	size_t order; /* in the file */
	enum kind kind;
	bool guest, before;
	int32_t pid, tid, parent_pid, parent_tid;
	struct profile_mapping *mapping;
	const char *comm;
};

struct program {
	struct history since;
	const struct profile_image *image; /* NULL: not mapped yet */
	bool sure;                         /* the image is certainly the program's */
};

struct process {
	bool guest;
	int32_t pid;
	struct history *spaces;   /* struct profile_space */
	struct history *programs; /* struct program */
};

struct comm_change {
	struct history since;
	const char *comm;
};

struct thread {
	int32_t tid;
	struct history *comms; /* struct comm_change; at least one */
};

struct profile_timeline {
	struct pool *pool;
	struct record *records;
	size_t count, capacity;
	struct hash_table processes, threads;
	bool has_programs;
	uint32_t spaces;
	struct profile_space **all;
	size_t all_capacity;
};

struct profile_timeline *profile_timeline_new(struct pool *pool)
{
	struct profile_timeline *timeline = calloc(1, sizeof(*timeline));

	if (timeline)
		timeline->pool = pool;
	return timeline;
}

static void free_space(struct profile_space *space)
{
	if (space->index)
		mapping_index_free(space->index);
	free(space->mappings);
}

void profile_timeline_free(struct profile_timeline *timeline)
{
	if (!timeline)
		return;
	for (uint32_t i = 0; i < timeline->spaces; i++)
		free_space(timeline->all[i]);
	free(timeline->all);
	free(timeline->records);
	hash_table_free(&timeline->processes);
	hash_table_free(&timeline->threads);
	free(timeline);
}

static int add_record(struct profile_timeline *timeline, const struct record *record)
{
	if (array_reserve(&timeline->records, &timeline->capacity, timeline->count + 1))
		return -ENOMEM;
	timeline->records[timeline->count] = *record;
	timeline->records[timeline->count].order = timeline->count;
	timeline->count++;
	return 0;
}

int profile_timeline_map(struct profile_timeline *timeline, bool guest, int32_t pid, uint64_t time,
			 uint64_t start, uint64_t size, uint64_t offset,
			 struct profile_image *image)
{
	struct profile_mapping *mapping = pool_alloc(timeline->pool, sizeof(*mapping));

	if (!mapping)
		return -ENOMEM;
	*mapping = (struct profile_mapping){
		.time = time,
		.start = start,
		.end = start + size < start ? UINT64_MAX : start + size,
		.offset = offset,
		.image = image,
	};
	return add_record(timeline, &(struct record){ .time = time,
						      .kind = KIND_MAP,
						      .guest = guest,
						      .pid = pid,
						      .mapping = mapping });
}

int profile_timeline_comm(struct profile_timeline *timeline, uint32_t tid, uint64_t time,
			  const char *comm)
{
	return add_record(timeline, &(struct record){ .time = time,
						      .kind = KIND_COMM,
						      .tid = (int32_t)tid,
						      .comm = comm });
}

int profile_timeline_exec(struct profile_timeline *timeline, uint32_t pid, uint64_t time)
{
	return add_record(timeline,
			  &(struct record){ .time = time, .kind = KIND_EXEC, .pid = (int32_t)pid });
}

int profile_timeline_fork(struct profile_timeline *timeline, uint32_t pid, uint32_t tid,
			  uint32_t parent_pid, uint32_t parent_tid, uint64_t time, bool before)
{
	return add_record(timeline, &(struct record){ .time = time,
						      .kind = KIND_FORK,
						      .before = before || !time,
						      .pid = (int32_t)pid,
						      .tid = (int32_t)tid,
						      .parent_pid = (int32_t)parent_pid,
						      .parent_tid = (int32_t)parent_tid });
}

static int by_time(const void *left, const void *right)
{
	const struct record *a = left, *b = right;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static uint64_t process_hash(bool guest, int32_t pid)
{
	return hash_mix(guest, (uint32_t)pid);
}

static bool same_process(const void *item, const void *key)
{
	const struct process *a = item, *b = key;

	return a->pid == b->pid && a->guest == b->guest;
}

static bool same_thread(const void *item, const void *key)
{
	return ((const struct thread *)item)->tid == *(const int32_t *)key;
}

static struct process *find_process(const struct profile_timeline *timeline, bool guest,
				    int32_t pid)
{
	return hash_table_find(&timeline->processes, process_hash(guest, pid), same_process,
			       &(struct process){ .guest = guest, .pid = pid });
}

static struct thread *find_thread(const struct profile_timeline *timeline, int32_t tid)
{
	return hash_table_find(&timeline->threads, hash_mix(0, (uint32_t)tid), same_thread, &tid);
}

/* The comm at TIME, else the first one. */
static const struct comm_change *comm_at(const struct thread *thread, uint64_t time)
{
	return (const struct comm_change *)history_at(thread->comms, time);
}

static struct process *get_process(struct profile_timeline *timeline, bool guest, int32_t pid)
{
	struct process *process = find_process(timeline, guest, pid);

	if (process)
		return process;
	process = pool_alloc(timeline->pool, sizeof(*process));
	if (!process)
		return NULL;
	process->guest = guest;
	process->pid = pid;
	return hash_table_add(&timeline->processes, process_hash(guest, pid), process) ? NULL
										       : process;
}

static struct profile_space *newest_space(const struct process *process)
{
	return (struct profile_space *)process->spaces;
}

static struct profile_space *new_space(struct profile_timeline *timeline, struct process *process,
				       uint64_t born)
{
	struct profile_space *space = pool_alloc(timeline->pool, sizeof(*space));

	if (array_reserve(&timeline->all, &timeline->all_capacity, (size_t)timeline->spaces + 1))
		return NULL;
	if (!space)
		return NULL;
	space->id = timeline->spaces;
	history_add(&process->spaces, &space->lifetime, born);
	timeline->all[timeline->spaces++] = space;
	return space;
}

static int start_program(struct profile_timeline *timeline, struct process *process, uint64_t time,
			 const struct profile_image *image)
{
	struct program *program = pool_alloc(timeline->pool, sizeof(*program));

	if (!program)
		return -ENOMEM;
	*program = (struct program){ .image = image, .sure = image };
	history_add(&process->programs, &program->since, time);
	timeline->has_programs = true;
	return 0;
}

static int apply_exec(struct profile_timeline *timeline, const struct record *record)
{
	struct process *process = get_process(timeline, false, record->pid);

	return process ? start_program(timeline, process, record->time, NULL) : -ENOMEM;
}

/* Programs in memory files have no slash (perf_data_sideband.c). */
static bool can_be_program(const char *path)
{
	return *path == '/' || !strncmp(path, "memfd:", strlen("memfd:"));
}

/*
 * execve sets the thread's comm to 15 characters of the file's name (fs/exec.c, begin_new_exec()).
 */
static bool has_comm_of(const struct profile_timeline *timeline, const struct process *process,
			const struct profile_image *image)
{
	const struct thread *thread = find_thread(timeline, process->pid);
	uint64_t time = process->programs->time;
	const struct comm_change *change = thread ? comm_at(thread, time) : NULL;

	return change && change->since.time <= time && !strncmp(change->comm, image->name, 15);
}

/*
 * The kernel maps the program before its interpreter and libraries (fs/binfmt_elf.c,
 * load_elf_binary()). But guest clocks are not exact to the microsecond and events may come late,
 * so a mapping from before the execve may follow it, or a library may precede the program. A
 * program whose comm differs from its file's name, such as a script's interpreter, can be mistaken
 * for a library then.
 */
static void update_program(const struct profile_timeline *timeline, struct process *process,
			   const struct profile_mapping *mapping)
{
	struct program *program = (struct program *)process->programs;
	const struct profile_image *image = mapping->image;

	if (!program || program->sure || !can_be_program(image->path))
		return;
	if (!program->image || has_comm_of(timeline, process, image))
		program->image = image;
	program->sure = program->image == image && has_comm_of(timeline, process, image);
}

static int apply_mapping(struct profile_timeline *timeline, const struct record *record)
{
	struct process *process = get_process(timeline, record->guest, record->pid);
	struct profile_space *space;

	if (!process)
		return -ENOMEM;
	space = process->spaces ? newest_space(process) : new_space(timeline, process, 0);
	if (!space)
		return -ENOMEM;
	if (array_reserve(&space->mappings, &space->capacity, space->count + 1))
		return -ENOMEM;
	space->mappings[space->count++] = record->mapping;
	update_program(timeline, process, record->mapping);
	return 0;
}

static int apply_comm(struct profile_timeline *timeline, int32_t tid, uint64_t time,
		      const char *comm)
{
	struct thread *thread = find_thread(timeline, tid);
	struct comm_change *comm_change = pool_alloc(timeline->pool, sizeof(*comm_change));

	if (!comm_change)
		return -ENOMEM;
	if (!thread) {
		thread = pool_alloc(timeline->pool, sizeof(*thread));
		if (!thread ||
		    hash_table_add(&timeline->threads, hash_mix(0, (uint32_t)tid), thread))
			return -ENOMEM;
		thread->tid = tid;
	}
	comm_change->comm = comm;
	history_add(&thread->comms, &comm_change->since, time);
	return 0;
}

/* A child runs its parent's program, known or not, until it executes another. */
static int inherit_program(struct profile_timeline *timeline, struct process *child,
			   const struct process *parent, uint64_t time)
{
	const struct profile_image *image =
		parent && parent->programs ? ((const struct program *)parent->programs)->image
					   : NULL;

	if (!image && !child->programs)
		return 0;
	return start_program(timeline, child, time, image ? image : &unknown_program);
}

/* A parent without mappings of its own is skipped, as each generation takes time in lookups. */
static void inherit_mappings(struct profile_space *space, struct profile_space *parent)
{
	space->parent = parent->count ? parent : parent->parent;
	space->parent_epoch = parent->count ? (uint32_t)parent->count : parent->parent_epoch;
}

static const char *newest_comm(const struct thread *thread)
{
	return ((const struct comm_change *)thread->comms)->comm;
}

static int apply_fork(struct profile_timeline *timeline, const struct record *record)
{
	struct thread *parent_thread = find_thread(timeline, record->parent_tid);
	struct process *parent = find_process(timeline, false, record->parent_pid);
	struct process *process = get_process(timeline, false, record->pid);
	struct profile_space *space;

	if (!process)
		return -ENOMEM;
	if (parent_thread && !record->before &&
	    apply_comm(timeline, record->tid, record->time, newest_comm(parent_thread)))
		return -ENOMEM;
	if (record->pid == record->parent_pid)
		return 0;
	space = new_space(timeline, process, record->time);
	if (!space)
		return -ENOMEM;
	if (inherit_program(timeline, process, record->before ? NULL : parent, record->time))
		return -ENOMEM;
	/* The mappings of a process that ran already follow. */
	if (parent && parent->spaces && !record->before)
		inherit_mappings(space, newest_space(parent));
	return 0;
}

static int index_spaces(struct profile_timeline *timeline)
{
	for (uint32_t i = 0; i < timeline->spaces; i++) {
		struct profile_space *space = timeline->all[i];

		if (space->count < INDEX_MIN)
			continue;
		space->index = pool_alloc(timeline->pool, sizeof(*space->index));
		if (!space->index ||
		    mapping_index_build(space->index, space->mappings, space->count))
			return -ENOMEM;
	}
	return 0;
}

int profile_timeline_finish(struct profile_timeline *timeline)
{
	int error = 0;

	if (timeline->count)
		qsort(timeline->records, timeline->count, sizeof(*timeline->records), by_time);
	for (size_t i = 0; i < timeline->count && !error; i++) {
		const struct record *record = &timeline->records[i];

		if (record->kind == KIND_MAP)
			error = apply_mapping(timeline, record);
		else if (record->kind == KIND_COMM)
			error = apply_comm(timeline, record->tid, record->time, record->comm);
		else if (record->kind == KIND_EXEC)
			error = apply_exec(timeline, record);
		else
			error = apply_fork(timeline, record);
	}
	free(timeline->records);
	timeline->records = NULL;
	timeline->count = timeline->capacity = 0;
	return error ? error : index_spaces(timeline);
}

const struct profile_space *profile_timeline_space(const struct profile_timeline *timeline,
						   bool guest, int32_t pid, uint64_t time)
{
	const struct process *process = find_process(timeline, guest, pid);

	return process ? (const struct profile_space *)history_at(process->spaces, time) : NULL;
}

uint32_t profile_space_epoch(const struct profile_space *space, uint64_t time)
{
	/* The common case: samples after all mappings. */
	if (!space->count || space->mappings[space->count - 1]->time <= time)
		return (uint32_t)space->count;
	return (uint32_t)array_partition(space->count, i, space->mappings[i]->time <= time);
}

/* As mapping_index_find(). */
static uint32_t find_by_search(const struct profile_space *space, uint32_t epoch, uint64_t address)
{
	while (epoch && (address < space->mappings[epoch - 1]->start ||
			 address >= space->mappings[epoch - 1]->end))
		epoch--;
	return epoch;
}

const struct profile_mapping *profile_space_find(const struct profile_space *space, uint32_t epoch,
						 uint64_t address)
{
	for (unsigned int i = 0; space && i < GENERATIONS_MAX;
	     i++, epoch = space->parent_epoch, space = space->parent) {
		uint32_t latest = space->index ? mapping_index_find(space->index, epoch, address)
					       : find_by_search(space, epoch, address);

		if (latest)
			return space->mappings[latest - 1];
	}
	return NULL;
}

const struct profile_image *profile_timeline_program(const struct profile_timeline *timeline,
						     uint32_t pid, uint64_t time)
{
	const struct process *process =
		timeline->has_programs ? find_process(timeline, false, (int32_t)pid) : NULL;
	const struct program *program =
		process ? (const struct program *)history_at(process->programs, time) : NULL;

	return program && program->since.time <= time && program->image != &unknown_program
		       ? program->image
		       : NULL;
}

const char *profile_timeline_comm_of(const struct profile_timeline *timeline, uint32_t tid,
				     uint64_t time)
{
	const struct thread *thread = find_thread(timeline, (int32_t)tid);

	return thread ? comm_at(thread, time)->comm : "";
}
