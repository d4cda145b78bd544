/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/timeline.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define THREADS 4
#define ROOTS   32

struct process {
	bool alive;
	uint32_t pid, tids[THREADS];
	unsigned int threads;
	size_t lifetime;
};

struct world {
	struct timeline *timeline;
	uint64_t state, time;
	struct process processes[TIMELINE_PIDS + 1]; /* by pid */
	bool tid_used[TIMELINE_PIDS + 1];
	bool root_used[ROOTS];
	uint32_t numbers;
	size_t capacity, lifetime_capacity;
};

uint32_t timeline_random(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33) % below;
}

static uint32_t pick(struct world *world, uint32_t below)
{
	return timeline_random(&world->state, below);
}

static struct timeline_event *add_event(struct world *world, uint16_t type, size_t size,
					uint32_t pid, uint32_t tid)
{
	struct timeline *timeline = world->timeline;
	struct timeline_event *event;

	if (timeline->count == world->capacity) {
		world->capacity = world->capacity ? 2 * world->capacity : 64;
		timeline->events =
			realloc(timeline->events, world->capacity * sizeof(timeline->events[0]));
	}
	event = &timeline->events[timeline->count++];
	memset(event, 0, sizeof(*event));
	world->time += 1 + pick(world, 100000);
	event->time = world->time;
	event->record.head = (struct sideband){
		.size = (uint32_t)size, .type = type, .time = world->time, .pid = pid, .tid = tid
	};
	return event;
}

static uint64_t allocate_root(struct world *world)
{
	for (uint32_t i = 0; i < ROOTS; i++)
		if (!world->root_used[i]) {
			world->root_used[i] = true;
			return (uint64_t)(i + 1) << 13;
		}
	return 0;
}

static void begin_lifetime(struct world *world, struct process *process,
			   struct timeline_event *event)
{
	struct timeline *timeline = world->timeline;

	if (timeline->lifetime_count == world->lifetime_capacity) {
		world->lifetime_capacity =
			world->lifetime_capacity ? 2 * world->lifetime_capacity : 64;
		timeline->lifetimes =
			realloc(timeline->lifetimes,
				world->lifetime_capacity * sizeof(timeline->lifetimes[0]));
	}
	process->lifetime = timeline->lifetime_count++;
	event->record.head.cr3 = allocate_root(world);
	event->record.head.flags |= event->record.head.cr3 ? SIDEBAND_CR3_PAIR : 0;
	timeline->lifetimes[process->lifetime] = (struct timeline_lifetime){
		.pid = process->pid,
		.born = event->time,
		.died = UINT64_MAX,
		.cr3 = event->record.head.cr3,
	};
}

static void end_lifetime(struct world *world, const struct process *process)
{
	struct timeline_lifetime *lifetime = &world->timeline->lifetimes[process->lifetime];

	lifetime->died = world->time;
	if (lifetime->cr3)
		world->root_used[(lifetime->cr3 >> 13) - 1] = false;
}

/* Usually the lowest free id, so that ids are soon reused. */
static uint32_t free_id(struct world *world)
{
	uint32_t first = pick(world, 4) ? 0 : pick(world, TIMELINE_PIDS);

	for (uint32_t i = 0; i < TIMELINE_PIDS; i++) {
		uint32_t id = 1 + (first + i) % TIMELINE_PIDS;

		if (!world->tid_used[id])
			return id;
	}
	return 0;
}

static struct process *any_process(struct world *world)
{
	uint32_t first = pick(world, TIMELINE_PIDS);

	for (uint32_t i = 0; i < TIMELINE_PIDS; i++) {
		struct process *process = &world->processes[1 + (first + i) % TIMELINE_PIDS];

		if (process->alive)
			return process;
	}
	return NULL;
}

static void start_process(struct world *world, uint32_t pid)
{
	world->processes[pid] =
		(struct process){ .alive = true, .pid = pid, .tids = { pid }, .threads = 1 };
	world->tid_used[pid] = true;
}

static void set_comm(struct world *world, struct timeline_event *event)
{
	event->number = ++world->numbers;
	snprintf(event->record.comm.comm, sizeof(event->record.comm.comm), "c%u", event->number);
}

static struct timeline_event *add_mmap(struct world *world, const struct process *process,
				       bool program)
{
	struct timeline_event *event = add_event(
		world, SIDEBAND_MMAP, sizeof(event->record.mmap) + sizeof(event->record.name),
		process->pid, process->tids[pick(world, process->threads)]);
	struct sideband_mmap *mmap = &event->record.mmap;

	event->number = ++world->numbers;
	mmap->start = TIMELINE_BASE + 4096ull * pick(world, TIMELINE_PAGES);
	mmap->length = 4096ull * (1 + pick(world, 12));
	mmap->offset = 4096ull * pick(world, 100);
	mmap->prot = program || pick(world, 4) ? PROT_READ | PROT_EXEC : PROT_READ;
	mmap->inode = event->number;
	snprintf(event->record.name, sizeof(event->record.name), "%s%u",
		 program || pick(world, 8) ? "/image/" : "[image]", event->number);
	return event;
}

static void find_process(struct world *world)
{
	uint32_t pid = free_id(world);
	struct timeline_event *event;

	if (!pid)
		return;
	start_process(world, pid);
	event = add_event(world, SIDEBAND_COMM, sizeof(event->record.comm), pid, pid);
	event->begins = true;
	set_comm(world, event);
	begin_lifetime(world, &world->processes[pid], event);
	if (pick(world, 2))
		add_mmap(world, &world->processes[pid], true);
}

static void fork_process(struct world *world, const struct process *parent)
{
	uint32_t pid = free_id(world);
	struct timeline_event *event;

	if (!pid)
		return;
	start_process(world, pid);
	event = add_event(world, SIDEBAND_FORK, sizeof(event->record.fork), pid, pid);
	event->record.fork.parent_pid = parent->pid;
	event->record.fork.parent_tid = parent->tids[pick(world, parent->threads)];
	begin_lifetime(world, &world->processes[pid], event);
}

static void start_thread(struct world *world, struct process *process)
{
	uint32_t tid = process->threads < THREADS ? free_id(world) : 0;
	struct timeline_event *event;

	if (!tid)
		return;
	world->tid_used[tid] = true;
	event = add_event(world, SIDEBAND_FORK, sizeof(event->record.fork), process->pid, tid);
	event->record.fork.parent_pid = process->pid;
	event->record.fork.parent_tid = process->tids[pick(world, process->threads)];
	process->tids[process->threads++] = tid;
}

static void exit_thread(struct world *world, struct process *process, unsigned int index)
{
	uint32_t tid = process->tids[index];

	add_event(world, SIDEBAND_EXIT, sizeof(struct sideband), process->pid, tid);
	process->tids[index] = process->tids[--process->threads];
	/* An id is free again after the process that it identified has exited too. */
	if (tid != process->pid)
		world->tid_used[tid] = false;
	if (!process->threads) {
		process->alive = false;
		world->tid_used[process->pid] = false;
		end_lifetime(world, process);
	}
}

/* All other threads end first; the last one has the process's id from here on. */
static void exec(struct world *world, struct process *process)
{
	struct timeline_event *event;

	while (process->threads > 1)
		exit_thread(world, process, pick(world, process->threads));
	if (process->tids[0] != process->pid)
		world->tid_used[process->tids[0]] = false;
	process->tids[0] = process->pid;
	event = add_event(world, SIDEBAND_COMM, sizeof(event->record.comm), process->pid,
			  process->pid);
	event->record.head.flags |= SIDEBAND_COMM_EXEC;
	end_lifetime(world, process);
	set_comm(world, event);
	begin_lifetime(world, process, event);
	for (uint32_t i = pick(world, 8); i; i--)
		add_mmap(world, process, false);
}

static void unmap(struct world *world, const struct process *process)
{
	struct timeline_event *event =
		add_event(world, SIDEBAND_MUNMAP, sizeof(event->record.munmap), process->pid,
			  process->tids[pick(world, process->threads)]);

	event->record.munmap.start = TIMELINE_BASE + 4096ull * pick(world, TIMELINE_PAGES);
	event->record.munmap.length = 4096ull * (1 + pick(world, 8));
}

static void rename_thread(struct world *world, const struct process *process)
{
	set_comm(world, add_event(world, SIDEBAND_COMM, sizeof(struct sideband_comm), process->pid,
				  process->tids[pick(world, process->threads)]));
}

static void step(struct world *world)
{
	struct process *process = any_process(world);
	uint32_t choice = pick(world, 32);

	if (!process || choice < 2)
		find_process(world);
	else if (choice < 5)
		fork_process(world, process);
	else if (choice < 8)
		exec(world, process);
	else if (choice < 10)
		start_thread(world, process);
	else if (choice < 15)
		exit_thread(world, process, pick(world, process->threads));
	else if (choice < 17)
		rename_thread(world, process);
	else if (choice < 19)
		unmap(world, process);
	else
		add_mmap(world, process, false);
}

void timeline_make(struct timeline *timeline, uint64_t seed, size_t events)
{
	struct world *world = calloc(1, sizeof(*world));

	*timeline = (struct timeline){ 0 };
	world->timeline = timeline;
	world->state = seed;
	world->time = 1000000;
	while (timeline->count < events)
		step(world);
	timeline->end = world->time + 1;
	free(world);
}

void timeline_free(struct timeline *timeline)
{
	free(timeline->events);
	free(timeline->lifetimes);
}

/* The number of events up to TIME. */
static size_t events_until(const struct timeline *timeline, uint64_t time)
{
	size_t low = 0, high = timeline->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (timeline->events[middle].time <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool lifetimes(const struct timeline_lifetime *lifetime, uint64_t time)
{
	return lifetime->born <= time && time < lifetime->died;
}

static uint32_t find_pid(const struct timeline *timeline, uint32_t pid, uint64_t cr3, uint64_t time)
{
	for (size_t i = 0; i < timeline->lifetime_count; i++) {
		const struct timeline_lifetime *lifetime = &timeline->lifetimes[i];

		if (lifetimes(lifetime, time) &&
		    (pid ? lifetime->pid == pid : lifetime->cr3 && lifetime->cr3 == cr3))
			return lifetime->pid;
	}
	return 0;
}

static bool is_child(const struct timeline_event *event, uint32_t pid)
{
	return event->record.head.type == SIDEBAND_FORK && event->record.head.pid == pid &&
	       event->record.fork.parent_pid != pid;
}

static bool is_exec(const struct timeline_event *event, uint32_t pid)
{
	return event->record.head.pid == pid && event->record.head.flags & SIDEBAND_COMM_EXEC;
}

static bool covers(const struct timeline_event *event, uint32_t pid, uint64_t address)
{
	const struct sideband *head = &event->record.head;
	uint64_t start, length;

	if (head->pid != pid || (head->type != SIDEBAND_MMAP && head->type != SIDEBAND_MUNMAP))
		return false;
	start = head->type == SIDEBAND_MMAP ? event->record.mmap.start : event->record.munmap.start;
	length = head->type == SIDEBAND_MMAP ? event->record.mmap.length
					     : event->record.munmap.length;
	return address >= start && address - start < length;
}

static void ask_image(const struct timeline *timeline, size_t count, uint32_t pid, uint64_t address,
		      struct timeline_answer *answer)
{
	while (count--) {
		const struct timeline_event *event = &timeline->events[count];

		if (covers(event, pid, address)) {
			if (event->record.head.type == SIDEBAND_MUNMAP)
				return;
			answer->image = event->number;
			answer->offset =
				address - event->record.mmap.start + event->record.mmap.offset;
			return;
		}
		if (is_exec(event, pid) || (event->begins && event->record.head.pid == pid))
			return;
		if (is_child(event, pid))
			pid = event->record.fork.parent_pid;
	}
}

static uint32_t ask_comm(const struct timeline *timeline, size_t count, uint32_t tid)
{
	while (count--) {
		const struct timeline_event *event = &timeline->events[count];

		if (event->record.head.tid != tid)
			continue;
		if (event->record.head.type == SIDEBAND_COMM)
			return event->number;
		if (event->record.head.type == SIDEBAND_EXIT)
			return 0;
		if (event->record.head.type == SIDEBAND_FORK)
			tid = event->record.fork.parent_tid;
	}
	return 0;
}

struct timeline_answer timeline_ask(const struct timeline *timeline, uint32_t pid, uint32_t tid,
				    uint64_t cr3, uint64_t address, uint64_t time)
{
	struct timeline_answer answer = { .pid = find_pid(timeline, pid, cr3, time) };
	size_t count = events_until(timeline, time);

	if (answer.pid)
		ask_image(timeline, count, answer.pid, address, &answer);
	if (pid || answer.pid)
		answer.comm = ask_comm(timeline, count, pid ? tid : answer.pid);
	return answer;
}
