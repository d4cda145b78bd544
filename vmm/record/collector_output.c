// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/collector_output.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/perf_data/perf_data_sideband.h"
#include "vmm/record/collector.h"

static void free_output(struct collector_output *output)
{
	task_lives_free(output->lives);
	task_names_free(output->names);
	user_spaces_free(output->spaces);
	jit_spaces_free(output->jit);
	cgroup_names_free(output->cgroups);
	process_cgroups_free(output->told_cgroups);
	page_table_tasks_free(output->page_tables);
	*output = (struct collector_output){ 0 };
}

int collector_output_open(struct collector_output *output, const struct perf_data_options *options,
			  struct guest_account *account)
{
	int error;

	*output = (struct collector_output){ .lives = task_lives_new(),
					     .names = task_names_new(),
					     .spaces = user_spaces_new(account),
					     .cgroups = cgroup_names_new(),
					     .jit = jit_spaces_new(account),
					     .told_cgroups = process_cgroups_new(account) };
	if (output->lives && output->names && output->spaces && output->cgroups && output->jit &&
	    output->told_cgroups)
		error = perf_data_writer_open(&output->writer, options);
	else
		error = error_set(-ENOMEM, "no memory for the names of the guest's tasks");
	if (error)
		free_output(output);
	return error;
}

int collector_output_name_page_tables(struct collector_output *output)
{
	output->page_tables = page_table_tasks_new();
	return output->page_tables ? 0
				   : error_set(-ENOMEM, "no memory for the names of page tables");
}

void collector_output_losses(const struct collector_output *output, struct losses *losses)
{
	if (output->page_tables)
		losses->counts[LOSS_CR3_UNKNOWN] += page_table_tasks_refused(output->page_tables);
}

/* Where to tell of a sample's mappings. */
struct telling {
	struct collector_output *output;
	const struct attributed_sample *attributed;
	const struct user_images *images; /* NULL: their images are not known */
};

static int tell_jit(void *context, const struct sideband *record)
{
	const struct telling *telling = context;

	return perf_data_writer_sideband(telling->output->writer, record);
}

/* To the file; those who write beside each other know of it. */
static int tell(struct collector_output *output, const struct sideband *record)
{
	struct telling telling = { .output = output };
	int error = perf_data_writer_sideband(output->writer, record);

	return error ? error
		     : jit_spaces_told(output->jit, record,
				       &(struct jit_spaces_teller){ .tell = tell_jit,
								    .context = &telling });
}

/* The idle tasks are one to perf, which calls it so; the guest calls each "swapper/" and the number
 * of its CPU. */
static void describe_task(const struct sample *sample, const struct perf_data_task *task,
			  char *name)
{
	if (!task->of_guest)
		snprintf(name, SAMPLE_COMM_SIZE, "vcpu %u", sample->vcpu);
	else if (!task->pid)
		snprintf(name, SAMPLE_COMM_SIZE, "swapper");
	else
		snprintf(name, SAMPLE_COMM_SIZE, "%.*s", SAMPLE_COMM_SIZE - 1, sample->comm);
}

/* Readers begin a thread anew with it. */
static int tell_life(struct collector_output *output, const struct sample *sample, uint32_t tid,
		     uint32_t parent_pid)
{
	const struct sideband_fork fork = {
		.head = { .size = sizeof(fork),
			  .type = SIDEBAND_FORK,
			  .flags = SIDEBAND_FORK_EARLIER,
			  .time = sample->time,
			  .pid = sample->pid,
			  .tid = tid },
		.parent_pid = parent_pid,
		.parent_tid = parent_pid,
	};

	task_names_due(output->names, sample->pid, tid, sample->time, "");
	return perf_data_writer_sideband(output->writer, &fork.head);
}

/* perf gives a new process its parent's name: its own has to follow, though its first thread may
 * never be sampled. */
static int name_process(struct collector_output *output, const struct sample *sample)
{
	char name[SAMPLE_COMM_SIZE];

	snprintf(name, sizeof(name), "%.*s", SAMPLE_COMM_SIZE - 1, sample->process_comm);
	if (!task_names_due(output->names, sample->pid, sample->pid, sample->time, name))
		return 0;
	return perf_data_writer_comm(output->writer, sample->time, (int32_t)sample->pid,
				     (int32_t)sample->pid, name);
}

/*
 * Whose child the sample's process is, and that the thread is one of its threads, as perf would
 * tell of what runs when it begins. The process first: with it readers forget what they knew of its
 * id.
 */
static int tell_lives(struct collector_output *output, const struct sample *sample)
{
	int error = 0;

	if (output->told_by_guest || !sample->started || sample->pid >= SAMPLE_TASK_LIMIT ||
	    sample->tid >= SAMPLE_TASK_LIMIT)
		return 0;
	if (task_lives_due(output->lives, sample->pid, sample->started)) {
		user_spaces_begin(output->spaces, sample->pid);
		error = tell_life(output, sample, sample->pid, sample->parent);
	}
	if (error || sample->tid == sample->pid)
		return error;
	error = name_process(output, sample);
	if (!error && task_lives_due(output->lives, sample->tid, sample->started))
		error = tell_life(output, sample, sample->tid, sample->pid);
	return error;
}

static int name_task(struct collector_output *output, const struct sample *sample,
		     const struct perf_data_task *task)
{
	char name[SAMPLE_COMM_SIZE];

	describe_task(sample, task, name);
	if (!task_names_due(output->names, task->pid, task->tid, sample->time, name))
		return 0;
	return perf_data_writer_comm(output->writer, sample->time, (int32_t)task->pid,
				     (int32_t)task->tid, name);
}

/* A process of that number, with the guest's program mapped. */
static int begin_page_tables(struct collector_output *output, const struct sample *sample,
			     uint32_t pid)
{
	uint32_t parent = (uint32_t)perf_data_writer_unknown_pid(output->writer);
	const struct sideband_fork fork = {
		.head = { .size = sizeof(fork),
			  .type = SIDEBAND_FORK,
			  .time = sample->time,
			  .pid = pid,
			  .tid = pid },
		.parent_pid = parent,
		.parent_tid = parent,
	};
	char name[SAMPLE_COMM_SIZE];
	int error = perf_data_writer_sideband(output->writer, &fork.head);

	page_table_tasks_name(sample->cr3, name);
	return error ? error
		     : perf_data_writer_comm(output->writer, sample->time, (int32_t)pid,
					     (int32_t)pid, name);
}

/* In the host's perspective it is the vCPU's thread. */
static bool is_task_unknown(const struct perf_data_task *task)
{
	return !task->of_guest && task->pid == SAMPLE_TASK_LIMIT;
}

/* Whose SAMPLE is, *TASK, which then has its name in the file. */
static int take_task(struct collector_output *output, const struct sample *sample,
		     struct perf_data_task *task)
{
	uint32_t pid = 0;
	bool first;

	*task = perf_data_writer_task(output->writer, sample);
	if (output->page_tables && is_task_unknown(task) && !(sample->flags & SAMPLE_HOST))
		pid = page_table_tasks_pid(output->page_tables, sample->cr3, &first);
	if (!pid)
		return name_task(output, sample, task);
	*task = (struct perf_data_task){ pid, pid, true };
	return first ? begin_page_tables(output, sample, pid) : 0;
}

/* NULL: it is not known, or has no name. */
static struct user_image *image_of(const struct user_images *images,
				   const struct sample_mapping *mapping)
{
	struct user_image *image;

	if (!images || user_images_generation(images) != mapping->images)
		return NULL;
	image = user_images_at((struct user_images *)(uintptr_t)images, mapping->image);
	return image && user_image_name(image) ? image : NULL;
}

static bool is_named(void *context, const struct sample_mapping *mapping)
{
	const struct telling *telling = context;

	return image_of(telling->images, mapping);
}

bool collector_output_tells(const struct guest_kernel *kernel, const struct sample *sample,
			    uint64_t address)
{
	const struct user_images *images = kernel ? kernel->images : NULL;
	const struct sample_mapping *mappings = sample_mappings(sample);

	for (uint16_t i = 0; i < sample->mappings; i++)
		if (address - mappings[i].start < mappings[i].end - mappings[i].start)
			return image_of(images, &mappings[i]);
	return false;
}

/* By build id, else by inode, else by name: whatever is known of both. */
static bool is_same_image(const struct resolver_image *told, const struct user_image *image)
{
	const uint8_t *build_id;
	size_t size = user_image_build_id(image, &build_id);
	uint64_t inode, generation;
	uint32_t device;

	if (size && told->build_id_size)
		return size == told->build_id_size && !memcmp(build_id, told->build_id, size);
	user_image_file(image, &device, &inode, &generation);
	if (inode && told->inode)
		return inode == told->inode && device == (told->major << 20 | told->minor);
	return !strcmp(user_image_name(image), told->name);
}

static bool is_same_place(const struct telling *telling, const struct resolver_place *place,
			  uint64_t address, const struct sample_mapping *mapping)
{
	const struct user_image *image = mapping ? image_of(telling->images, mapping) : NULL;

	return image && place->image &&
	       place->offset == address - mapping->start + mapping->offset &&
	       is_same_image(place->image, image);
}

/* What the guest told of ADDRESS is in the file, at the time that it told. */
static enum user_spaces_said said_by_guest(void *context, uint64_t address,
					   const struct sample_mapping *mapping, uint64_t *since)
{
	const struct telling *telling = context;
	struct resolver_place place = resolver_place_of(telling->attributed, address);

	*since = place.displaced ? UINT64_MAX : place.since;
	if (place.unsure)
		return USER_SPACES_UNSURE;
	if (!place.image || place.displaced || (!mapping && place.stale))
		return USER_SPACES_NOTHING;
	return is_same_place(telling, &place, address, mapping) ? USER_SPACES_SAME
								: USER_SPACES_OTHER;
}

static void describe_image(const struct user_image *image, struct sideband_mmap *mmap)
{
	const uint8_t *build_id;
	uint32_t device;

	mmap->build_id_size = (uint8_t)user_image_build_id(image, &build_id);
	memcpy(mmap->build_id, build_id, mmap->build_id_size);
	user_image_file(image, &device, &mmap->inode, &mmap->generation);
	mmap->major = device >> 20;
	mmap->minor = device & 0xfffff;
}

static int map(void *context, uint32_t pid, uint64_t time, const struct sample_mapping *mapping)
{
	const struct telling *telling = context;
	struct collector_output *output = telling->output;
	const struct user_image *image = image_of(telling->images, mapping);
	union {
		struct sideband_mmap mmap;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} record = {
		.mmap = { .head = { .type = SIDEBAND_MMAP, .time = time, .pid = pid, .tid = pid },
			  .start = mapping->start,
			  .length = mapping->end - mapping->start,
			  .offset = mapping->offset,
			  .prot = mapping->flags & (PROT_READ | PROT_WRITE | PROT_EXEC),
			  .map_flags =
				  mapping->flags & USER_MAPPING_SHARED ? MAP_SHARED : MAP_PRIVATE }
	};
	const char *name = user_image_name(image);

	record.mmap.head.size = sideband_size(sizeof(record.mmap), name);
	if (record.mmap.head.size > sizeof(record))
		return 0;
	memcpy(record.mmap.name, name, strlen(name) + 1);
	describe_image(image, &record.mmap);
	if (output->told_by_guest && output->filled)
		output->filled(output->context, &record.mmap);
	return tell(output, &record.mmap.head);
}

static int unmap(void *context, uint32_t pid, uint64_t time, uint64_t start, uint64_t end)
{
	const struct telling *telling = context;
	const struct sideband_munmap record = {
		.head = { .size = sizeof(record),
			  .type = SIDEBAND_MUNMAP,
			  .time = time,
			  .pid = pid,
			  .tid = pid },
		.start = start,
		.length = end - start,
	};

	return tell(telling->output, &record.head);
}

static struct user_spaces_teller teller_of(struct telling *telling)
{
	const struct resolver *resolver = telling->attributed->resolver;

	return (struct user_spaces_teller){
		.is_named = is_named,
		.map = map,
		.unmap = unmap,
		.said = resolver && resolver_is_told(resolver) ? said_by_guest : NULL,
		.context = telling,
	};
}

/* What it is in can not be told any more: it goes without an image, and without the user part of
 * its chain.
 */
static int write_late(struct collector_output *output, const struct sample *sample,
		      const struct perf_data_task *task, uint64_t cgroup)
{
	struct sample *copy = malloc(sample_length(sample));
	const struct sample_hit *hit;
	int error;

	if (!copy)
		return error_set(-ENOMEM, "no memory for a sample");
	memcpy(copy, sample, sizeof(*copy) + sample->kernel_depth * sizeof(copy->callchain[0]));
	hit = sample_hit(sample);
	copy->user_depth = copy->mappings = copy->deferred = 0;
	copy->flags |= SAMPLE_USER_TRUNCATED | (sample->cpl ? SAMPLE_UNCERTAIN : 0);
	if (hit)
		*sample_write_hit(copy) = *hit;
	error = perf_data_writer_sample_of(output->writer, copy, task, cgroup);
	free(copy);
	return error;
}

static const struct sample_mapping *mapping_of(const struct sample *sample, uint64_t address)
{
	const struct sample_mapping *mappings = sample_mappings(sample);

	for (uint16_t i = 0; i < sample->mappings; i++)
		if (address >= mappings[i].start && address < mappings[i].end)
			return &mappings[i];
	return NULL;
}

/* As the sample itself says, or else the guest. */
static bool is_anonymous(void *context, uint64_t address)
{
	const struct telling *telling = context;
	const struct sample_mapping *mapping = mapping_of(telling->attributed->sample, address);
	const struct user_image *image = mapping ? image_of(telling->images, mapping) : NULL;
	struct resolver_place place;
	const uint8_t *build_id;

	if (image)
		return sideband_is_anonymous(user_image_name(image),
					     user_image_build_id(image, &build_id));
	place = resolver_place_of(telling->attributed, address);
	return place.image && !place.unsure &&
	       sideband_is_anonymous(place.image->name, place.image->build_id_size);
}

static int name_jit(struct telling *telling)
{
	const struct collector_output *output = telling->output;
	const struct sample *sample = telling->attributed->sample;

	if (!output->jit_code || sample->pid == SAMPLE_TASK_UNKNOWN || !sample->pid)
		return 0;
	return jit_spaces_sample(output->jit, output->jit_code, sample,
				 &(struct jit_spaces_teller){ .is_anonymous = is_anonymous,
							      .tell = tell_jit,
							      .context = telling });
}

/* That of the sample; 0 for one of a kernel that has ended, whose ids are those of others now. */
static uint64_t seen_cgroup(const struct sample *sample, const struct guest_cgroups *cgroups)
{
	return cgroups && guest_cgroups_generation(cgroups) == sample->cgroups ? sample->cgroup : 0;
}

/*
 * What was seen at the sample counts, but for the root of the unified hierarchy where the guest
 * tells of one of version 1: then all are in that root.
 */
static uint64_t cgroup_of(const struct collector_output *output, const struct sample *sample,
			  const struct guest_cgroups *cgroups)
{
	uint64_t seen = seen_cgroup(sample, cgroups), told;
	const char *name = seen ? guest_cgroups_path(cgroups, seen) : NULL;

	told = process_cgroups_of(output->told_cgroups, sample->pid);
	if (!seen || (name && !strcmp(name, "/") && process_cgroups_id_is_made(told)))
		return told;
	return seen;
}

static int tell_cgroup(struct collector_output *output, const struct sideband_cgroup *record)
{
	uint64_t id = process_cgroups_id(record);

	if (!cgroup_names_due(output->cgroups, id))
		return 0;
	return perf_data_writer_cgroup(output->writer, record->head.time, id, record->path);
}

static int name_cgroup(struct collector_output *output, uint64_t time, uint64_t cgroup,
		       const struct guest_cgroups *cgroups)
{
	const char *name = cgroup ? guest_cgroups_path(cgroups, cgroup) : NULL;

	if (!name || !cgroup_names_due(output->cgroups, cgroup))
		return 0;
	return perf_data_writer_cgroup(output->writer, time, cgroup, name);
}

int collector_output_sample(struct collector_output *output,
			    const struct attributed_sample *attributed,
			    const struct guest_kernel *kernel)
{
	struct telling telling = { output, attributed, kernel ? kernel->images : NULL };
	const struct user_spaces_teller teller = teller_of(&telling);
	const struct guest_cgroups *cgroups = kernel ? kernel->cgroups : NULL;
	const struct sample *sample = attributed->sample;
	uint64_t cgroup = cgroup_of(output, sample, cgroups);
	int error = tell_lives(output, sample);
	struct perf_data_task task;
	bool late = false;

	if (!error)
		error = take_task(output, sample, &task);
	if (!error)
		error = name_cgroup(output, sample->time, cgroup, cgroups);
	if (!error)
		error = user_spaces_sample(output->spaces, sample, &teller, &late);
	if (!error && !late)
		error = name_jit(&telling);
	if (error)
		return error;
	return late ? write_late(output, sample, &task, cgroup)
		    : perf_data_writer_sample_of(output->writer, sample, &task, cgroup);
}

/* Readers begin a new process with what its parent had; and they give a new thread its parent's
 * name: whatever it is called, it is to be said again. */
static void note_fork(struct collector_output *output, const struct sideband_fork *fork)
{
	const struct sideband *head = &fork->head;

	if (head->pid != fork->parent_pid)
		user_spaces_fork(output->spaces, head->pid, fork->parent_pid, head->time);
	task_names_fork(output->names, head->pid, head->tid, head->time);
}

static int tell_told(struct collector_output *output, const struct sideband *record)
{
	const struct sideband_comm *comm = (const void *)record;

	output->told_by_guest |= record->type == SIDEBAND_MMAP;
	if (record->type == SIDEBAND_FORK)
		note_fork(output, (const void *)record);
	if (record->type == SIDEBAND_EXIT)
		user_spaces_end(output->spaces, record->pid, record->tid, record->time);
	if (record->type == SIDEBAND_COMM &&
	    !task_names_due(output->names, record->pid, record->tid, record->time, comm->comm) &&
	    !(record->flags & SIDEBAND_COMM_EXEC))
		return 0;
	return tell(output, record);
}

/* What a record changes of what its process has mapped; nothing: its end is 0. */
static struct sample_mapping changed_by(const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;
	const struct sideband_mmap *mmap = (const void *)record;

	if (record->type == SIDEBAND_MMAP)
		return (struct sample_mapping){ .start = mmap->start,
						.end = mmap->start + mmap->length };
	if ((record->type == SIDEBAND_FORK && record->pid != fork->parent_pid) ||
	    (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC))
		return (struct sample_mapping){ .end = PERF_DATA_USER_SPACE_END };
	return (struct sample_mapping){ 0 };
}

/* By a clock that is not known exactly. An execve keeps its time: what is mapped then follows it.
 */
static uint64_t time_to_write(const struct collector_output *output, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;

	if (record->type == SIDEBAND_FORK)
		return user_spaces_fork_time(output->spaces, record->pid, fork->parent_pid,
					     record->time);
	return user_spaces_time(output->spaces, record->pid, record->time,
				record->type == SIDEBAND_MMAP);
}

/*
 * What RECORD changes is not known of samples that went out: from the earliest time that it may be
 * of, and again from where what came in between stands.
 */
static int leave_open(struct collector_output *output, const struct user_spaces_teller *teller,
		      const struct sideband *record, const struct sample_mapping *range)
{
	uint64_t times[USER_SPACES_OPEN];
	int error = 0;

	user_spaces_open(output->spaces, record->pid, record->time, record->time_error, times);
	for (int i = 0; i < USER_SPACES_OPEN && !error; i++)
		error = teller->unmap(teller->context, record->pid, times[i], range->start,
				      range->end);
	return error;
}

/* Written behind samples that know better, or would be read otherwise, where it came late. */
static int tell_inexact(struct collector_output *output, const struct sideband *record,
			const struct guest_kernel *kernel)
{
	struct telling telling = { output, NULL, kernel ? kernel->images : NULL };
	const struct user_spaces_teller teller = {
		.is_named = is_named, .map = map, .unmap = unmap, .context = &telling
	};
	const struct sample_mapping range = changed_by(record);
	union {
		struct sideband head;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} told;
	int error = 0;

	if (range.end &&
	    user_spaces_is_open(output->spaces, record->pid, record->time, record->time_error))
		error = leave_open(output, &teller, record, &range);
	assert(record->size <= sizeof(told));
	memcpy(&told, record, record->size);
	told.head.time = time_to_write(output, record);
	if (!error)
		error = tell_told(output, &told.head);
	if (error || record->type != SIDEBAND_MMAP || told.head.time == record->time)
		return error;
	return user_spaces_written(output->spaces, record->pid, record->time, told.head.time,
				   &range, &teller);
}

int collector_output_sideband(struct collector_output *output, const struct sideband *record,
			      const struct guest_kernel *kernel)
{
	process_cgroups_take(output->told_cgroups, record);
	if (record->type == SIDEBAND_LOST)
		return 0; /* readers are told as the losses are counted */
	if (record->type == SIDEBAND_CGROUP)
		return tell_cgroup(output, (const void *)record);
	return record->time_error ? tell_inexact(output, record, kernel)
				  : tell_told(output, record);
}

int collector_output_event(struct collector_output *output, const struct sample_event *event)
{
	return perf_data_writer_event(output->writer, event);
}

int collector_output_counts(struct collector_output *output,
			    const struct collector_options *options, uint64_t time)
{
	size_t watches = options->count ? perf_data_watches_count(options->output.watches) : 0;
	struct perf_data_count count;
	int error = 0;

	for (unsigned int watch = 0; watch < watches; watch++)
		for (unsigned int vcpu = 0; vcpu < options->output.vcpus && !error; vcpu++)
			if (options->count(options->context, watch, vcpu, &count))
				error = perf_data_writer_count(output->writer, time, vcpu,
							       (uint16_t)(watch + 1), &count);
	return error;
}

int collector_output_lost(struct collector_output *output, uint64_t time, uint32_t vcpu,
			  uint64_t count)
{
	return perf_data_writer_lost(output->writer, time, vcpu, count);
}

int collector_output_close(struct collector_output *output)
{
	int error = perf_data_writer_close(output->writer);

	free_output(output);
	return error;
}

const struct sample *collector_sample(const struct ring_record *record, size_t vcpus,
				      size_t watches)
{
	const struct sample *sample = (const void *)record->payload;
	size_t size = record->size - sizeof(*record);

	if (record->type != RECORD_SAMPLE || size < sizeof(*sample) || sample->vcpu >= vcpus ||
	    sample->event > watches ||
	    sample->kernel_depth + sample->user_depth > SAMPLE_CALLCHAIN_MAX ||
	    sample->mappings > SAMPLE_MAPPINGS_MAX || size < sample_length(sample))
		return NULL;
	return sample;
}

const struct sample_event *collector_event(const struct ring_record *record, size_t vcpus,
					   size_t watches)
{
	const struct sample_event *event = (const void *)record->payload;

	if (record->type != RECORD_EVENT || record->size - sizeof(*record) < sizeof(*event) ||
	    event->vcpu >= vcpus || !event->event || event->event > watches)
		return NULL;
	return event;
}

const struct sample_guest_breakpoint_lost *collector_guest_lost(const struct ring_record *record,
								size_t vcpus)
{
	const struct sample_guest_breakpoint_lost *lost = (const void *)record->payload;

	if (record->type != RECORD_GUEST_BREAKPOINT_LOST ||
	    record->size - sizeof(*record) < sizeof(*lost) || lost->vcpu >= vcpus)
		return NULL;
	return lost;
}
