/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_processes.h"

#include <errno.h>
#include <sys/mman.h>

/* A thread is counted in one lifetime: that of its latest record. */
static int count_thread(struct resolver_processes *processes, struct resolver_lifetime *life,
			uint32_t tid)
{
	struct resolver_thread *thread =
		resolver_threads_get(&processes->threads, &processes->store, tid);

	if (!thread)
		return -ENOMEM;
	if (thread->life != life->number) {
		thread->life = life->number;
		life->threads++;
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

static int note_root(struct resolver_processes *processes, struct resolver_lifetime *life,
		     const struct sideband *record)
{
	return resolver_lifetimes_root(&processes->lives, &processes->store, life, record,
				       record->time, processes->lost);
}

static struct resolver_lifetime *begin_life(struct resolver_processes *processes,
					    const struct sideband *record)
{
	struct resolver_lifetime *life = resolver_lifetimes_begin(
		&processes->lives, &processes->store, record->pid, record->time);

	if (life)
		life->born_error = record->time_error;
	return life;
}

/* The lifetime that a record is about; an unknown process begins with this record. */
static struct resolver_lifetime *need_life(struct resolver_processes *processes,
					   const struct sideband *record)
{
	struct resolver_lifetime *life =
		resolver_lifetimes_find(&processes->lives, record->pid, record->time);

	if (!life) {
		life = begin_life(processes, record);
		/* Its first thread is alive, too; otherwise it would end with any other. */
		if (life && count_thread(processes, life, record->pid))
			return NULL;
	}
	if (!life || count_thread(processes, life, record->tid) ||
	    note_root(processes, life, record))
		return NULL;
	return life;
}

static int take_thread(struct resolver_processes *processes, const struct sideband_fork *fork)
{
	return need_life(processes, &fork->head) ? inherit_name(processes, fork) : -ENOMEM;
}

static int take_fork(struct resolver_processes *processes, const struct sideband_fork *fork)
{
	const struct sideband *head = &fork->head;
	struct resolver_lifetime *parent, *child;
	int error;

	if (head->pid == fork->parent_pid)
		return take_thread(processes, fork);
	parent = resolver_lifetimes_find(&processes->lives, fork->parent_pid, head->time);
	child = begin_life(processes, head);
	if (!child || count_thread(processes, child, head->tid) ||
	    note_root(processes, child, head))
		return -ENOMEM;
	error = inherit_name(processes, fork);
	if (error || !parent)
		return error;
	return resolver_space_inherit(&child->space, &parent->space, &processes->store, head->time);
}

static int take_comm(struct resolver_processes *processes, const struct sideband_comm *comm)
{
	const struct sideband *head = &comm->head;
	const struct resolver_name name = { comm->comm, head->time };
	struct resolver_lifetime *life;

	if (head->flags & SIDEBAND_COMM_EXEC)
		begin_life(processes, head);
	life = need_life(processes, head);
	if (!life)
		return -ENOMEM;
	return name_thread(processes, head->tid, head->time, &name);
}

/* A process ends with the last of its known threads. */
static int take_exit(struct resolver_processes *processes, const struct sideband *head)
{
	struct resolver_lifetime *life =
		resolver_lifetimes_find(&processes->lives, head->pid, head->time);
	struct resolver_thread *thread = resolver_threads_find(&processes->threads, head->tid);

	if (life && thread && thread->life == life->number) {
		thread->life = 0;
		if (!--life->threads)
			resolver_lifetimes_end(&processes->lives, life, head->time);
	}
	return thread ? name_thread(processes, head->tid, head->time,
				    &(struct resolver_name){ "", head->time })
		      : 0;
}

/* The source has seen the process only now; the page tables are as old as its address space. */
static int take_space(struct resolver_processes *processes, const struct sideband *head)
{
	struct resolver_lifetime *life =
		resolver_lifetimes_find(&processes->lives, head->pid, head->time);

	return life ? resolver_lifetimes_root(&processes->lives, &processes->store, life, head,
					      life->born, processes->lost)
		    : 0;
}

static int take_mmap(struct resolver_processes *processes, const struct sideband_mmap *mmap)
{
	struct resolver_lifetime *life = need_life(processes, &mmap->head);
	struct resolver_image *image =
		life ? resolver_image_of_mmap(&processes->store, mmap) : NULL;
	int error;

	if (!image)
		return -ENOMEM;
	error = resolver_space_map(&life->space, &processes->store,
				   &(struct resolver_piece){ .start = mmap->start,
							     .end = mmap->start + mmap->length,
							     .from = mmap->head.time,
							     .from_error = mmap->head.time_error,
							     .offset = mmap->offset,
							     .image = image });
	processes->mappings_known = true;
	resolver_lifetimes_changed(&processes->lives, life);
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

static int take_munmap(struct resolver_processes *processes, const struct sideband_munmap *munmap)
{
	struct resolver_lifetime *life = need_life(processes, &munmap->head);
	struct resolver_piece hole = hole_of(munmap);
	int error = life ? resolver_space_map(&life->space, &processes->store, &hole) : -ENOMEM;

	if (life)
		resolver_lifetimes_changed(&processes->lives, life);
	return error;
}

static int take_module(struct resolver_processes *processes, const struct sideband_module *module)
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

static int take(struct resolver_processes *processes, const struct sideband *record)
{
	struct resolver_piece hole;

	switch (record->type) {
	case SIDEBAND_FORK:
		return take_fork(processes, (const void *)record);
	case SIDEBAND_COMM:
		return take_comm(processes, (const void *)record);
	case SIDEBAND_EXIT:
		return take_exit(processes, record);
	case SIDEBAND_MMAP:
		return take_mmap(processes, (const void *)record);
	case SIDEBAND_MUNMAP:
		return take_munmap(processes, (const void *)record);
	case SIDEBAND_ADDRESS_SPACE:
		return take_space(processes, record);
	case SIDEBAND_MODULE_LOAD:
		return take_module(processes, (const void *)record);
	case SIDEBAND_MODULE_UNLOAD:
		hole = hole_of((const void *)record);
		return resolver_space_map(&processes->kernel, &processes->store, &hole);
	default:
		return 0;
	}
}

int resolver_processes_apply(struct resolver_processes *processes, const struct sideband *record)
{
	int error = take(processes, record);

	if (error && record->time > processes->lost)
		processes->lost = record->time;
	return error;
}

void resolver_processes_forget(struct resolver_processes *processes, uint64_t horizon)
{
	resolver_space_forget(&processes->kernel, &processes->store, horizon);
	resolver_lifetimes_forget(&processes->lives, &processes->store, horizon);
	resolver_threads_forget(&processes->threads, &processes->store, horizon);
}

void resolver_processes_free(struct resolver_processes *processes)
{
	resolver_lifetimes_free(&processes->lives, &processes->store);
	resolver_threads_free(&processes->threads, &processes->store);
	resolver_space_free(&processes->kernel, &processes->store);
	resolver_table_free(&processes->store.images, processes->store.account);
}
