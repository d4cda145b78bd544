/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file says of user addresses. Readers take a mapping to be there until another one
 * replaces it, and nothing reports how a process unmaps. So before a sample its addresses are made
 * to read as decided, and an address that nothing is known of to read as unmapped.
 *
 * Where a source reports mappings into the same file, they stay as long as the samples agree. At an
 * address for which a sample carries no mapping, the last report holds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/perf_data/perf_data_sideband.h"
#include "vmm/record/file_state_parts.h"

/* Ids are given one after the other: the low bits distinguish processes that live together. */
#define SLOTS      8192u
#define PIECES_MAX 128u

/* Forks and exits that no sample has come up to yet: those of a second, in a fork storm. */
#define EVENTS 2048u

#define PAGE_SIZE 4096ull

/* What is left of a range that was written for a sample, where nothing was written over it. */
struct piece {
	uint64_t start, end;
	uint64_t time;                 /* ns, of the record */
	struct sample_mapping mapping; /* as it was written; all 0: unmapped */
};

struct space {
	uint32_t pid;
	size_t count, capacity;
	uint64_t latest;      /* ns, of the latest record written for a sample */
	bool ended;           /* its first thread has */
	struct piece *pieces; /* by address; owned */
	size_t charged;       /* bytes of the account */
};

/* What was written before TIME may read otherwise by now. */
struct doubt {
	uint32_t pid;  /* 0: all processes of the slot */
	uint64_t time; /* ns; 0: there is none */
};

/* A fork or exit that a source reported. */
struct event {
	uint32_t pid, parent; /* parent 0: a thread of PID ended, */
	bool first;           /* its first one */
	uint64_t time;
};

struct file_mappings {
	struct guest_account *account;
	const struct image_catalog *images;
	struct file_emit emit;
	struct space *spaces[SLOTS]; /* owned */
	struct doubt doubts[SLOTS];
	struct event events[EVENTS]; /* a queue */
	uint32_t first_event, event_count;
	uint64_t now; /* ns, of the latest sample */
	/* ns, of the processes of each slot: */
	uint64_t samples[SLOTS]; /* the latest sample, */
	uint64_t trusted[SLOTS]; /* the latest sample that reads as reported by a source, */
	uint64_t moved[SLOTS];   /* and the latest time that a late report was moved to */
	uint64_t in_time;        /* ns, the latest report that needed no move */
};

struct file_mappings *file_mappings_new(struct guest_account *account,
					const struct image_catalog *images,
					const struct file_emit *emit)
{
	struct file_mappings *mappings = calloc(1, sizeof(*mappings));

	if (!mappings)
		return NULL;
	mappings->account = account;
	mappings->images = images;
	mappings->emit = *emit;
	return mappings;
}

void file_mappings_free(struct file_mappings *mappings)
{
	for (uint32_t i = 0; mappings && i < SLOTS; i++) {
		struct space *space = mappings->spaces[i];

		if (!space)
			continue;
		guest_account_release(mappings->account, space->charged);
		free(space->pieces);
		free(space);
	}
	free(mappings);
}

/* --- records ---------------------------------------------------------------------- */

static int emit_mmap(struct file_mappings *mappings, uint32_t pid, uint64_t time,
		     const struct sample_mapping *mapping, const struct resolver_image *image)
{
	union {
		struct sideband_mmap mmap;
		uint8_t bytes[SIDEBAND_SIZE_MAX];
	} record = { .mmap = {
			     .head = sideband_head(SIDEBAND_MMAP,
						   sideband_size(sizeof(record.mmap), image->name),
						   time, pid),
			     .start = mapping->start,
			     .length = mapping->end - mapping->start,
			     .offset = mapping->offset,
			     .prot = mapping->flags & (PROT_READ | PROT_WRITE | PROT_EXEC),
			     .map_flags = mapping->flags & USER_MAPPING_SHARED ? MAP_SHARED
									       : MAP_PRIVATE,
		     } };

	if (record.mmap.head.size > sizeof(record))
		return 0;
	resolver_image_describe(image, &record.mmap);
	return mappings->emit.record(mappings->emit.context, &record.mmap.head);
}

static int emit_munmap(struct file_mappings *mappings, uint32_t pid, uint64_t time, uint64_t start,
		       uint64_t end)
{
	const struct sideband_munmap record = {
		.head = sideband_head(SIDEBAND_MUNMAP, sizeof(record), time, pid),
		.start = start,
		.length = end - start,
	};

	return mappings->emit.record(mappings->emit.context, &record.head);
}

/* --- pieces of a space ------------------------------------------------------------ */

static struct space *space_of(const struct file_mappings *mappings, uint32_t pid)
{
	struct space *space = mappings->spaces[pid % SLOTS];

	return space && space->pid == pid ? space : NULL;
}

/* The first piece that ends after ADDRESS; COUNT if there is none. */
static size_t find(const struct space *space, uint64_t address)
{
	size_t i = 0;

	while (i < space->count && space->pieces[i].end <= address)
		i++;
	return i;
}

static const struct piece *piece_at(const struct space *space, uint64_t address)
{
	size_t i = space ? find(space, address) : 0;

	return space && i < space->count && space->pieces[i].start <= address ? &space->pieces[i]
									      : NULL;
}

/* Makes the file say that nothing is mapped where anything was written for samples. */
static int forget(struct file_mappings *mappings, struct space *space, uint64_t time)
{
	struct piece nothing = { .time = time };

	if (!space->count)
		return 0;
	nothing.start = space->pieces[0].start;
	nothing.end = space->pieces[space->count - 1].end;
	space->pieces[0] = nothing;
	space->count = 1;
	space->latest = time;
	return emit_munmap(mappings, space->pid, time, nothing.start, nothing.end);
}

static void remove_piece(struct space *space, size_t index)
{
	space->count--;
	memmove(&space->pieces[index], &space->pieces[index + 1],
		(space->count - index) * sizeof(space->pieces[0]));
}

static void insert_piece(struct space *space, size_t index, const struct piece *piece)
{
	memmove(&space->pieces[index + 1], &space->pieces[index],
		(space->count - index) * sizeof(space->pieces[0]));
	space->pieces[index] = *piece;
	space->count++;
}

/* Removes [start, end); there is room for one more piece. */
static void cut(struct space *space, uint64_t start, uint64_t end)
{
	size_t i = find(space, start);

	while (i < space->count && space->pieces[i].start < end) {
		struct piece before = space->pieces[i], after = before;

		before.end = start;
		after.start = end;
		remove_piece(space, i);
		if (before.start < start)
			insert_piece(space, i++, &before);
		if (after.end > end)
			insert_piece(space, i++, &after);
	}
}

/* --- doubts ----------------------------------------------------------------------- */

static uint64_t doubted(const struct file_mappings *mappings, uint32_t pid)
{
	const struct doubt *doubt = &mappings->doubts[pid % SLOTS];

	return !doubt->pid || doubt->pid == pid ? doubt->time : 0;
}

static void add_doubt(struct file_mappings *mappings, uint32_t pid, uint64_t time)
{
	struct doubt *doubt = &mappings->doubts[pid % SLOTS];

	doubt->pid = !doubt->time || doubt->pid == pid ? pid : 0;
	doubt->time = time_later(time, doubt->time);
}

/* --- a sample --------------------------------------------------------------------- */

struct checking {
	struct file_mappings *mappings;
	const struct sample *sample;
	struct space *space; /* of its process; NULL: nothing was written for it */
	bool reports;        /* sources write mappings into the file, too */
};

/* Creates the space of the sample's process, in place of the process that has the slot. */
static int need_space(struct checking *checking)
{
	struct file_mappings *mappings = checking->mappings;
	const struct sample *sample = checking->sample;
	struct space **slot = &mappings->spaces[sample->pid % SLOTS];
	int error;

	if (checking->space)
		return 0;
	if (!*slot)
		*slot = calloc(1, sizeof(**slot));
	if (!*slot)
		return error_set(-ENOMEM, "no memory for the mappings of the guest's processes");
	error = forget(mappings, *slot, sample->time);
	if (error)
		return error;
	if ((*slot)->count)
		add_doubt(mappings, (*slot)->pid, sample->time);
	(*slot)->pid = sample->pid;
	(*slot)->count = 0;
	(*slot)->ended = false;
	checking->space = *slot;
	return 0;
}

/* From now on the file says that MAPPING is at [start, end); all 0: that nothing is. */
static int put(struct checking *checking, uint64_t start, uint64_t end,
	       const struct sample_mapping *mapping)
{
	struct piece piece = { start, end, checking->sample->time, *mapping };
	int error = need_space(checking);
	struct space *space = checking->space;

	if (!error && space->count + 2 > PIECES_MAX)
		error = forget(checking->mappings, space, piece.time);
	if (!error && array_reserve(&space->pieces, &space->capacity, space->count + 2))
		error = error_set(-ENOMEM, "no memory for the mappings of the guest's processes");
	if (error)
		return error;
	cut(space, start, end);
	insert_piece(space, find(space, start), &piece);
	space->latest = piece.time;
	return 0;
}

static int write_mapping(struct checking *checking, const struct sample_mapping *mapping,
			 const struct resolver_image *image)
{
	const struct sample *sample = checking->sample;
	int error = put(checking, mapping->start, mapping->end, mapping);

	return error ? error
		     : emit_mmap(checking->mappings, sample->pid, sample->time, mapping, image);
}

static int write_nothing(struct checking *checking, uint64_t start, uint64_t end)
{
	const struct sample *sample = checking->sample;
	int error = put(checking, start, end, &(struct sample_mapping){ 0 });

	return error ? error
		     : emit_munmap(checking->mappings, sample->pid, sample->time, start, end);
}

static bool says(const struct piece *piece, const struct sample_mapping *mapping)
{
	return piece && piece->start == mapping->start && piece->end == mapping->end &&
	       !memcmp(&piece->mapping, mapping, sizeof(*mapping));
}

/* Does the file read as a source reported at REPORTED? A source that is late has more to come. */
static bool is_trusted(const struct checking *checking, uint64_t reported)
{
	const struct file_mappings *mappings = checking->mappings;
	uint64_t moved = mappings->moved[checking->sample->pid % SLOTS];

	return reported > doubted(mappings, checking->sample->pid) &&
	       (!moved || moved < mappings->in_time);
}

/* The sample carries the mapping of ADDRESS: the file says it, or is made to. */
static int agree(struct checking *checking, uint64_t address,
		 const struct resolver_mapping *decision, uint64_t reported)
{
	const struct sample_mapping *mapping = resolver_carried_mapping(checking->sample, decision);
	const struct piece *piece = piece_at(checking->space, address);
	uint64_t written = piece ? piece->time : 0;

	if (decision->verdict == RESOLVER_CONFIRMED && reported > written &&
	    is_trusted(checking, reported))
		return 0;
	/* At equal times, what was written for a sample comes after the report. */
	if (says(piece, mapping) && written >= reported)
		return 0;
	return write_mapping(checking, mapping, decision->image);
}

/* The sample carries nothing for ADDRESS: what earlier samples carried may no longer hold. */
static int leave_open(struct checking *checking, uint64_t address, enum resolver_verdict verdict,
		      uint64_t reported)
{
	const struct piece *piece = piece_at(checking->space, address);
	uint64_t page = address & ~(PAGE_SIZE - 1);
	uint64_t *trusted = &checking->mappings->trusted[checking->sample->pid % SLOTS];

	if (piece && piece->time >= reported)
		return piece->mapping.end ? write_nothing(checking, piece->start, piece->end) : 0;
	if (verdict == RESOLVER_REPORTED && reported != UINT64_MAX &&
	    is_trusted(checking, reported)) {
		*trusted = time_later(*trusted, checking->sample->time);
		return 0;
	}
	if (!checking->reports || address >= PERF_DATA_USER_SPACE_END)
		return 0;
	return write_nothing(checking, page, page + PAGE_SIZE);
}

static int check(struct checking *checking, uint64_t address,
		 const struct resolver_mapping *decision)
{
	uint64_t reported = checking->reports ? decision->reported : 0;

	switch (decision->verdict) {
	case RESOLVER_CARRIED:
	case RESOLVER_CONFIRMED:
		return agree(checking, address, decision, reported);
	case RESOLVER_AMBIGUOUS:
		return 0; /* the sample is flagged: readers do not look it up */
	default:
		return leave_open(checking, address, decision->verdict, reported);
	}
}

static int check_all(struct checking *checking, const struct attributed_sample *attributed)
{
	const struct sample *sample = checking->sample;
	const uint64_t *user = sample->callchain + sample->kernel_depth;
	int error = 0;

	for (uint16_t i = 0; i < sample->user_depth && !error; i++)
		error = check(checking, user[i], &attributed->user[i]);
	/* A sample without a call chain is at its RIP. */
	if (!error && sample->cpl && (!sample->user_depth || user[0] != sample->rip))
		error = check(checking, sample->rip, &attributed->mapping);
	return error;
}

/* --- forks and exits -------------------------------------------------------------- */

/* Readers give a child its parent's mappings of that time. False: no room for them. */
static bool copy_space(struct file_mappings *mappings, uint32_t pid, const struct space *parent)
{
	struct space **slot = &mappings->spaces[pid % SLOTS], *child;
	size_t size = parent->count * sizeof(struct piece);

	if (*slot == parent || (*slot && (*slot)->count))
		return false;
	if (!*slot)
		*slot = calloc(1, sizeof(**slot));
	child = *slot;
	if (!child)
		return false;
	if (child->charged < size) {
		if (!guest_account_charge(mappings->account, size - child->charged))
			return false;
		child->charged = size;
	}
	if (array_reserve(&child->pieces, &child->capacity, parent->count))
		return false;
	memcpy(child->pieces, parent->pieces, size);
	child->pid = pid;
	child->count = parent->count;
	child->ended = false;
	child->latest = time_later(parent->latest, child->latest);
	return true;
}

static bool was_written(const struct file_mappings *mappings, uint32_t pid)
{
	const struct space *space = space_of(mappings, pid);

	return (space && space->count) || doubted(mappings, pid);
}

/* Readers forget the previous process of the child's id. A fork that is not IN_ORDER cannot tell
 * what had been written by then. */
static void apply_fork(struct file_mappings *mappings, const struct event *fork, bool in_order)
{
	const struct space *parent = space_of(mappings, fork->parent);
	bool late = fork->time <= mappings->moved[fork->pid % SLOTS];
	bool known = in_order ? !late && !doubted(mappings, fork->parent)
			      : !was_written(mappings, fork->parent) &&
					!was_written(mappings, fork->pid);
	struct doubt *doubt = &mappings->doubts[fork->pid % SLOTS];

	file_mappings_begin(mappings, fork->pid);
	if (known && parent && parent->count)
		known = copy_space(mappings, fork->pid, parent);
	if (known && in_order && doubt->pid == fork->pid)
		*doubt = (struct doubt){ 0 };
	if (!known)
		add_doubt(mappings, fork->pid, time_later(fork->time, mappings->now));
}

/* Readers keep the mappings of a process that has ended. */
static void apply_exit(struct file_mappings *mappings, const struct event *exit)
{
	struct space *space = space_of(mappings, exit->pid);

	if (!space || !(space->ended || exit->first))
		return;
	if (space->count)
		add_doubt(mappings, exit->pid, time_later(exit->time, mappings->now));
	space->count = 0;
	space->ended = true;
}

static void apply_first_event(struct file_mappings *mappings, bool in_order)
{
	const struct event *event = &mappings->events[mappings->first_event];

	if (event->parent)
		apply_fork(mappings, event, in_order && event->time >= mappings->now);
	else
		apply_exit(mappings, event);
	mappings->first_event = (mappings->first_event + 1) % EVENTS;
	mappings->event_count--;
}

static void add_event(struct file_mappings *mappings, const struct event *event)
{
	if (mappings->event_count == EVENTS)
		apply_first_event(mappings, false);
	mappings->events[(mappings->first_event + mappings->event_count++) % EVENTS] = *event;
}

void file_mappings_reported(struct file_mappings *mappings, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;

	if (record->type == SIDEBAND_FORK && record->pid != fork->parent_pid)
		add_event(mappings, &(struct event){ .pid = record->pid,
						     .parent = fork->parent_pid,
						     .time = record->time });
	if (record->type == SIDEBAND_EXIT)
		add_event(mappings, &(struct event){ .pid = record->pid,
						     .first = record->pid == record->tid,
						     .time = record->time });
}

void file_mappings_begin(struct file_mappings *mappings, uint32_t pid)
{
	struct space *space = space_of(mappings, pid);

	if (space)
		space->count = 0;
}

int file_mappings_sample(struct file_mappings *mappings, const struct attributed_sample *attributed,
			 bool reports, bool *late)
{
	const struct sample *sample = attributed->sample;
	uint32_t number = sample->pid % SLOTS;
	const struct space *space = mappings->spaces[number];

	*late = false;
	while (mappings->event_count &&
	       mappings->events[mappings->first_event].time <= sample->time)
		apply_first_event(mappings, true);
	mappings->now = time_later(mappings->now, sample->time);
	if (sample->pid == SAMPLE_TASK_UNKNOWN || !sample->pid)
		return 0;
	/* Also where another process has the slot: what was written for that one is later, and
	 * stays. */
	*late = (space && sample->time < space->latest) || sample->time < mappings->moved[number];
	if (*late)
		return 0;
	mappings->samples[number] = time_later(mappings->samples[number], sample->time);
	return check_all(
		&(struct checking){ mappings, sample, space_of(mappings, sample->pid), reports },
		attributed);
}

/* --- reports whose times are not exact -------------------------------------------- */

/* The addresses of its process that a record changes; nothing: its end is 0. */
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

/*
 * Samples that were written, and read as reported, may have been taken before or after RECORD. So
 * nothing is mapped in its range from the earliest time that it may be of, and, again, after
 * everything that was written since then: in time, or moved.
 */
static int leave_range_open(struct file_mappings *mappings, const struct sideband *record)
{
	const struct sample_mapping range = changed_by(record);
	uint64_t trusted = mappings->trusted[record->pid % SLOTS];
	uint64_t times[3];
	int error = 0;

	if (!range.end || !trusted || trusted + record->time_error < record->time)
		return 0;
	times[0] = time_before(record->time, record->time_error);
	times[1] = time_later(times[0], mappings->moved[record->pid % SLOTS]);
	times[2] = time_later(times[1], record->time);
	for (size_t i = 0; i < 3 && !error; i++)
		error = emit_munmap(mappings, record->pid, times[i], range.start, range.end);
	return error;
}

/* Not before what was moved, of the parent of a fork, too; mappings and forks not before samples
 * that were written, however wrong the source's clock is. */
static uint64_t earliest_time(const struct file_mappings *mappings, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;
	bool is_fork = record->type == SIDEBAND_FORK;
	uint64_t time = mappings->moved[record->pid % SLOTS];

	if (is_fork)
		time = time_later(time, mappings->moved[fork->parent_pid % SLOTS]);
	if (is_fork || record->type == SIDEBAND_MMAP)
		time = time_later(time, mappings->samples[record->pid % SLOTS] + 1);
	return time;
}

int file_mappings_move(struct file_mappings *mappings, struct sideband *record)
{
	int error = leave_range_open(mappings, record);
	uint64_t earliest = earliest_time(mappings, record);

	if (earliest > record->time)
		record->time = mappings->moved[record->pid % SLOTS] = earliest;
	else
		mappings->in_time = time_later(mappings->in_time, record->time);
	return error;
}

/* The part of PIECE that lies in [start, end). */
static int restate(struct file_mappings *mappings, const struct sideband_mmap *record,
		   const struct piece *piece)
{
	const struct resolver_image *image = image_catalog_find(mappings->images, &piece->mapping);
	const struct sideband *head = &record->head;
	struct sample_mapping part = piece->mapping;
	uint64_t end = record->start + record->length;

	part.start = piece->start > record->start ? piece->start : record->start;
	part.end = piece->end < end ? piece->end : end;
	part.offset += part.start - piece->mapping.start;
	if (piece->mapping.end && image)
		return emit_mmap(mappings, head->pid, head->time, &part, image);
	return emit_munmap(mappings, head->pid, head->time, part.start, part.end);
}

int file_mappings_restate(struct file_mappings *mappings, const struct sideband_mmap *record,
			  uint64_t reported)
{
	const struct space *space = space_of(mappings, record->head.pid);
	uint64_t end = record->start + record->length;
	int error = 0;

	for (size_t i = space ? find(space, record->start) : 0;
	     space && i < space->count && !error && space->pieces[i].start < end; i++)
		if (space->pieces[i].time >= reported)
			error = restate(mappings, record, &space->pieces[i]);
	return error;
}
