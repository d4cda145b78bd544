/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_processes.h"

#include <errno.h>
#include <sys/mman.h>

/* A thread is counted in one lifetime: that of its latest record. */
static int count_thread(struct resolver_processes *processes, struct resolver_lifetime *lifetime,
			uint32_t tid)
{
	struct resolver_thread *thread =
		resolver_threads_get(&processes->threads, &processes->store, tid);

	if (!thread)
		return -ENOMEM;
	if (thread->lifetime != lifetime->number) {
		thread->lifetime = lifetime->number;
		lifetime->threads++;
	}
	return 0;
}

static int name_thread(struct resolver_processes *processes, uint32_t tid, uint64_t time,
		       const struct resolver_name *name)
{
	struct resolver_thread *thread =
		resolver_threads_get(&processes->threads, &processes->store, tid);

	return thread ? resolver_threads_name(&processes->threads, &processes->store, thread, time,
					      name)
		      : -ENOMEM;
}

/* An inherited name is as old as the report on the parent. */
static int inherit_name(struct resolver_processes *processes, const struct sideband_fork *fork)
{
	const struct sideband *head = &fork->head;
	struct resolver_name name =
		resolver_threads_name_of(&processes->threads, fork->parent_tid, head->time);

	return name_thread(processes, head->tid, head->time, &name);
}

static int note_root(struct resolver_processes *processes, struct resolver_lifetime *lifetime,
		     const struct sideband *record)
{
	return resolver_lifetimes_root(&processes->lifetimes, &processes->store, lifetime, record,
				       record->time, processes->lost);
}

static struct resolver_lifetime *begin_lifetime(struct resolver_processes *processes,
						const struct sideband *record)
{
	struct resolver_lifetime *lifetime = resolver_lifetimes_begin(
		&processes->lifetimes, &processes->store, record->pid, record->time);

	if (lifetime)
		lifetime->born_error = record->time_error;
	return lifetime;
}

/* The lifetime that a record is about; an unknown process begins with this record. */
static struct resolver_lifetime *get_lifetime(struct resolver_processes *processes,
					      const struct sideband *record)
{
	struct resolver_lifetime *lifetime =
		resolver_lifetimes_find(&processes->lifetimes, record->pid, record->time);

	if (!lifetime) {
		lifetime = begin_lifetime(processes, record);
		/* Its first thread is alive, too; otherwise it would end with any other. */
		if (lifetime && count_thread(processes, lifetime, record->pid))
			return NULL;
	}
	if (!lifetime || count_thread(processes, lifetime, record->tid) ||
	    note_root(processes, lifetime, record))
		return NULL;
	return lifetime;
}

static int apply_thread(struct resolver_processes *processes, const struct sideband_fork *fork)
{
	return get_lifetime(processes, &fork->head) ? inherit_name(processes, fork) : -ENOMEM;
}

static int apply_fork(struct resolver_processes *processes, const struct sideband_fork *fork)
{
	const struct sideband *head = &fork->head;
	struct resolver_lifetime *parent, *child;
	int error;

	if (head->pid == fork->parent_pid)
		return apply_thread(processes, fork);
	parent = resolver_lifetimes_find(&processes->lifetimes, fork->parent_pid, head->time);
	child = begin_lifetime(processes, head);
	if (!child || count_thread(processes, child, head->tid) ||
	    note_root(processes, child, head))
		return -ENOMEM;
	error = inherit_name(processes, fork);
	if (error || !parent)
		return error;
	return resolver_space_inherit(&child->space, &parent->space, &processes->store, head->time);
}

static int apply_comm(struct resolver_processes *processes, const struct sideband_comm *comm)
{
	const struct sideband *head = &comm->head;
	const struct resolver_name name = { comm->comm, head->time };
	struct resolver_lifetime *lifetime;

	if (head->flags & SIDEBAND_COMM_EXEC)
		begin_lifetime(processes, head);
	lifetime = get_lifetime(processes, head);
	if (!lifetime)
		return -ENOMEM;
	return name_thread(processes, head->tid, head->time, &name);
}

/* A process ends with the last of its known threads. */
static int apply_exit(struct resolver_processes *processes, const struct sideband *head)
{
	struct resolver_lifetime *lifetime =
		resolver_lifetimes_find(&processes->lifetimes, head->pid, head->time);
	struct resolver_thread *thread = resolver_threads_find(&processes->threads, head->tid);

	if (lifetime && thread && thread->lifetime == lifetime->number) {
		thread->lifetime = 0;
		if (!--lifetime->threads)
			resolver_lifetimes_end(&processes->lifetimes, lifetime, head->time);
	}
	return thread ? name_thread(processes, head->tid, head->time,
				    &(struct resolver_name){ "", head->time })
		      : 0;
}

/* The source has seen the process only now; the page tables are as old as its address space. */
static int apply_space(struct resolver_processes *processes, const struct sideband *head)
{
	struct resolver_lifetime *lifetime =
		resolver_lifetimes_find(&processes->lifetimes, head->pid, head->time);

	return lifetime ? resolver_lifetimes_root(&processes->lifetimes, &processes->store,
						  lifetime, head, lifetime->born, processes->lost)
			: 0;
}

static int apply_mmap(struct resolver_processes *processes, const struct sideband_mmap *mmap)
{
	struct resolver_lifetime *lifetime = get_lifetime(processes, &mmap->head);
	struct resolver_image *image =
		lifetime ? resolver_image_of_mmap(&processes->store, mmap) : NULL;
	int error;

	if (!image)
		return -ENOMEM;
	error = resolver_space_map(&lifetime->space, &processes->store,
				   &(struct resolver_piece){ .start = mmap->start,
							     .end = mmap->start + mmap->length,
							     .from = mmap->head.time,
							     .from_error = mmap->head.time_error,
							     .offset = mmap->offset,
							     .image = image });
	processes->mappings_known = true;
	resolver_lifetimes_changed(&processes->lifetimes, lifetime);
	resolver_image_release(&processes->store, image);
	return error;
}

static struct resolver_piece hole_of(const struct sideband_munmap *munmap)
{
	return (struct resolver_piece){
		.start = munmap->start,
		.end = munmap->start + munmap->length,
		.from = munmap->head.time,
		.from_error = munmap->head.time_error,
	};
}

static int apply_munmap(struct resolver_processes *processes, const struct sideband_munmap *munmap)
{
	struct resolver_lifetime *lifetime = get_lifetime(processes, &munmap->head);
	struct resolver_piece hole = hole_of(munmap);
	int error =
		lifetime ? resolver_space_map(&lifetime->space, &processes->store, &hole) : -ENOMEM;

	if (lifetime)
		resolver_lifetimes_changed(&processes->lifetimes, lifetime);
	return error;
}

static int apply_module(struct resolver_processes *processes, const struct sideband_module *module)
{
	struct resolver_image *image = resolver_image_of_module(&processes->store, module);
	int error;

	if (!image)
		return -ENOMEM;
	error = resolver_space_map(&processes->kernel, &processes->store,
				   &(struct resolver_piece){ .start = module->start,
							     .end = module->start + module->length,
							     .from = module->head.time,
							     .from_error = module->head.time_error,
							     .image = image });
	resolver_image_release(&processes->store, image);
	return error;
}

static int apply_record(struct resolver_processes *processes, const struct sideband *record)
{
	struct resolver_piece hole;

	switch (record->type) {
	case SIDEBAND_FORK:
		return apply_fork(processes, (const void *)record);
	case SIDEBAND_COMM:
		return apply_comm(processes, (const void *)record);
	case SIDEBAND_EXIT:
		return apply_exit(processes, record);
	case SIDEBAND_MMAP:
		return apply_mmap(processes, (const void *)record);
	case SIDEBAND_MUNMAP:
		return apply_munmap(processes, (const void *)record);
	case SIDEBAND_ADDRESS_SPACE:
		return apply_space(processes, record);
	case SIDEBAND_MODULE_LOAD:
		return apply_module(processes, (const void *)record);
	case SIDEBAND_MODULE_UNLOAD:
		hole = hole_of((const void *)record);
		return resolver_space_map(&processes->kernel, &processes->store, &hole);
	default:
		return 0;
	}
}

int resolver_processes_apply(struct resolver_processes *processes, const struct sideband *record)
{
	int error = apply_record(processes, record);

	if (error && record->time > processes->lost)
		processes->lost = record->time;
	return error;
}

void resolver_processes_forget(struct resolver_processes *processes, uint64_t horizon)
{
	resolver_space_forget(&processes->kernel, &processes->store, horizon);
	resolver_lifetimes_forget(&processes->lifetimes, &processes->store, horizon);
	resolver_threads_forget(&processes->threads, &processes->store, horizon);
}

void resolver_processes_free(struct resolver_processes *processes)
{
	resolver_lifetimes_free(&processes->lifetimes, &processes->store);
	resolver_threads_free(&processes->threads, &processes->store);
	resolver_space_free(&processes->kernel, &processes->store);
	resolver_table_free(&processes->store.images, processes->store.account);
}
