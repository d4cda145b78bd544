/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/user_spaces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

/* Ids are given one after the other: the low bits tell those that live together apart. */
#define PLACES     8192u
#define PIECES_MAX 128u

/* Forks and ends that samples have not come up to yet: those of a second, in a storm. */
#define EVENTS 2048u

/* Below these user space ends (kernel: TASK_SIZE_MAX with five levels,
 * arch/x86/include/asm/page_64_types.h).
 */
#define ADDRESS_LIMIT (1ull << 56)
#define PAGE_SIZE     4096ull

/* What is left of what was told where nothing else came over it. */
struct piece {
	uint64_t start, end;
	uint64_t time;                 /* ns, of the record that told it */
	struct sample_mapping mapping; /* as it was told; all 0: that there is nothing */
};

struct space {
	uint32_t pid;
	uint32_t count, capacity;
	uint64_t latest;      /* ns: when it was last told of */
	bool ended;           /* its first thread has */
	struct piece *pieces; /* by address; owned */
	size_t taken;         /* bytes of the account */
};

/* Nothing counts that was written before: what was told besides is not known any more. */
struct doubt {
	uint32_t pid;  /* 0: any of the place */
	uint64_t time; /* ns; 0: there is none */
};

/* What others wrote into the file. */
struct event {
	uint32_t pid, parent; /* parent 0: a thread of PID ended, */
	bool first;           /* its first one */
	uint64_t time;
};

struct user_spaces {
	struct guest_account *account;
	struct space *places[PLACES]; /* owned */
	struct doubt doubts[PLACES];  /* of the processes of each place */
	struct event events[EVENTS];  /* a ring: those that samples have not come up to */
	uint32_t first_event, event_count;
	uint64_t now; /* ns, of the latest sample */
	/* ns, of the processes of each place: of their latest sample, */
	uint64_t out[PLACES];
	uint64_t open[PLACES];  /* of the latest that the other one's word was taken for, */
	uint64_t moved[PLACES]; /* and the latest that this was written for, where it came late */
	uint64_t in_time; /* ns, of the latest of his that did not: he has told what was before */
};

struct user_spaces *user_spaces_new(struct guest_account *account)
{
	struct user_spaces *spaces = calloc(1, sizeof(*spaces));

	if (spaces)
		spaces->account = account;
	return spaces;
}

static void free_space(struct user_spaces *spaces, struct space *space)
{
	if (!space)
		return;
	guest_account_release(spaces->account, space->taken);
	free(space->pieces);
	free(space);
}

void user_spaces_free(struct user_spaces *spaces)
{
	for (uint32_t i = 0; spaces && i < PLACES; i++)
		free_space(spaces, spaces->places[i]);
	free(spaces);
}

/* The first piece that ends behind ADDRESS; COUNT if there is none. */
static uint32_t find(const struct space *space, uint64_t address)
{
	uint32_t i = 0;

	while (i < space->count && space->pieces[i].end <= address)
		i++;
	return i;
}

static int reserve(struct space *space, uint32_t count)
{
	uint32_t capacity = space->capacity ? 2 * space->capacity : 8;
	struct piece *grown;

	if (count <= space->capacity)
		return 0;
	grown = realloc(space->pieces, (capacity > count ? capacity : count) * sizeof(*grown));
	if (!grown)
		return error_set(-ENOMEM, "no memory for what the guest's processes have mapped");
	space->pieces = grown;
	space->capacity = capacity > count ? capacity : count;
	return 0;
}

/* One piece of the space that is said to be nothing. */
static void leave_nothing(struct space *space, uint64_t time)
{
	struct piece nothing = { .start = space->pieces[0].start,
				 .end = space->pieces[space->count - 1].end,
				 .time = time };

	space->pieces[0] = nothing;
	space->count = 1;
}

/* All that was told, and what lies between it. */
static int forget(struct space *space, uint64_t time, const struct user_spaces_teller *teller)
{
	if (!space->count)
		return 0;
	leave_nothing(space, time);
	space->latest = time;
	return teller->unmap(teller->context, space->pid, time, space->pieces[0].start,
			     space->pieces[0].end);
}

static void remove_piece(struct space *space, uint32_t index)
{
	space->count--;
	memmove(&space->pieces[index], &space->pieces[index + 1],
		(space->count - index) * sizeof(space->pieces[0]));
}

static void insert_piece(struct space *space, uint32_t index, const struct piece *piece)
{
	memmove(&space->pieces[index + 1], &space->pieces[index],
		(space->count - index) * sizeof(space->pieces[0]));
	space->pieces[index] = *piece;
	space->count++;
}

/* PIECE, at INDEX, has a part in [start, end): what it has before and behind that stays. */
static uint32_t cut_piece(struct space *space, uint32_t index, uint64_t start, uint64_t end)
{
	struct piece before = space->pieces[index], behind = before;

	before.end = start;
	behind.start = end;
	remove_piece(space, index);
	if (before.start < start)
		insert_piece(space, index++, &before);
	if (behind.end > end)
		insert_piece(space, index++, &behind);
	return index;
}

/* What was in [start, end) is not there any more; there is room for one piece. */
static void cut(struct space *space, uint64_t start, uint64_t end)
{
	uint32_t i = find(space, start);

	while (i < space->count && space->pieces[i].start < end)
		i = cut_piece(space, i, start, end);
}

static const struct piece *piece_at(const struct space *space, uint64_t address)
{
	uint32_t i = space ? find(space, address) : 0;

	return space && i < space->count && space->pieces[i].start <= address ? &space->pieces[i]
									      : NULL;
}

static uint64_t doubted(const struct user_spaces *spaces, uint32_t pid)
{
	const struct doubt *doubt = &spaces->doubts[pid % PLACES];

	return !doubt->pid || doubt->pid == pid ? doubt->time : 0;
}

static void doubt(struct user_spaces *spaces, uint32_t pid, uint64_t time)
{
	struct doubt *doubt = &spaces->doubts[pid % PLACES];

	doubt->pid = !doubt->time || doubt->pid == pid ? pid : 0;
	doubt->time = time > doubt->time ? time : doubt->time;
}

/* PID begins anew. */
static void believe(struct user_spaces *spaces, uint32_t pid)
{
	struct doubt *doubt = &spaces->doubts[pid % PLACES];

	if (doubt->pid == pid)
		*doubt = (struct doubt){ 0 };
}

/* A sample, and what was told of its process. */
struct looking {
	struct user_spaces *spaces;
	const struct sample *sample;
	const struct user_spaces_teller *teller;
	struct space *space; /* NULL: nothing yet */
};

/* Makes the space of the sample's process, in the place of whoever has it. */
static int need_space(struct looking *looking)
{
	uint32_t number = looking->sample->pid % PLACES;
	struct space **place = &looking->spaces->places[number];
	int error;

	if (looking->space)
		return 0;
	if (!*place)
		*place = calloc(1, sizeof(**place));
	if (!*place)
		return error_set(-ENOMEM, "no memory for what the guest's processes have mapped");
	error = forget(*place, looking->sample->time, looking->teller);
	if (error)
		return error;
	if ((*place)->count)
		doubt(looking->spaces, (*place)->pid, looking->sample->time);
	(*place)->pid = looking->sample->pid;
	(*place)->count = 0;
	(*place)->ended = false;
	looking->space = *place;
	return 0;
}

/* From now on, the file says that MAPPING is in [start, end); all 0: that nothing is. */
static int put(struct looking *looking, uint64_t start, uint64_t end,
	       const struct sample_mapping *mapping)
{
	struct piece piece = { start, end, looking->sample->time, *mapping };
	int error = need_space(looking);

	if (!error && looking->space->count + 2 > PIECES_MAX)
		error = forget(looking->space, piece.time, looking->teller);
	if (!error)
		error = reserve(looking->space, looking->space->count + 2);
	if (error)
		return error;
	cut(looking->space, start, end);
	insert_piece(looking->space, find(looking->space, start), &piece);
	looking->space->latest = piece.time;
	return 0;
}

static int tell(struct looking *looking, const struct sample_mapping *mapping)
{
	const struct user_spaces_teller *teller = looking->teller;
	int error = put(looking, mapping->start, mapping->end, mapping);

	return error ? error
		     : teller->map(teller->context, looking->sample->pid, looking->sample->time,
				   mapping);
}

static int untell(struct looking *looking, uint64_t start, uint64_t end)
{
	const struct user_spaces_teller *teller = looking->teller;
	int error = put(looking, start, end, &(struct sample_mapping){ 0 });

	return error ? error
		     : teller->unmap(teller->context, looking->sample->pid, looking->sample->time,
				     start, end);
}

static bool covers(const struct sample_mapping *mapping, uint64_t address)
{
	return address - mapping->start < mapping->end - mapping->start;
}

/* The mapping of ADDRESS that SAMPLE tells, if it can be told; else NULL. */
static const struct sample_mapping *mapping_of(const struct sample *sample, uint64_t address,
					       const struct user_spaces_teller *teller)
{
	const struct sample_mapping *mappings = sample_mappings(sample);

	for (uint16_t i = 0; i < sample->mappings; i++)
		if (covers(&mappings[i], address))
			return teller->is_named(teller->context, &mappings[i]) ? &mappings[i]
									       : NULL;
	return NULL;
}

static bool tells(const struct piece *piece, const struct sample_mapping *mapping)
{
	return piece && piece->start == mapping->start && piece->end == mapping->end &&
	       !memcmp(&piece->mapping, mapping, sizeof(*mapping));
}

static enum user_spaces_said said(const struct looking *looking, uint64_t address,
				  const struct sample_mapping *mapping, uint64_t *since)
{
	const struct user_spaces_teller *teller = looking->teller;

	*since = 0;
	return teller->said ? teller->said(teller->context, address, mapping, since)
			    : USER_SPACES_NOTHING;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Samples come in order of time, as a rule. */
static void note_latest(uint64_t *times, const struct sample *sample)
{
	uint64_t *latest = &times[sample->pid % PLACES];

	*latest = later(*latest, sample->time);
}

/* Holds what the other one told of the sample's process since SINCE? Not where he is late: there is
 * more to come. */
static bool is_believed(const struct looking *looking, uint64_t since)
{
	const struct user_spaces *spaces = looking->spaces;
	uint64_t moved = spaces->moved[looking->sample->pid % PLACES];

	return since > doubted(spaces, looking->sample->pid) && (!moved || moved < spaces->in_time);
}

/* The sample says that ADDRESS is in MAPPING: so does the file, or is made to. */
static int agree(struct looking *looking, uint64_t address, const struct sample_mapping *mapping)
{
	const struct piece *piece = piece_at(looking->space, address);
	uint64_t told = piece ? piece->time : 0, since;
	enum user_spaces_said other = said(looking, address, mapping, &since);

	if (other == USER_SPACES_SAME && since > told && is_believed(looking, since))
		return 0;
	/* Of one moment, what is told here stands behind in the file. */
	if (other != USER_SPACES_UNSURE && tells(piece, mapping) && told >= since)
		return 0;
	return tell(looking, mapping);
}

/* The sample says nothing of ADDRESS: what earlier ones said is not known to be so any more. */
static int leave_open(struct looking *looking, uint64_t address)
{
	const struct piece *piece = piece_at(looking->space, address);
	uint64_t page = address & ~(PAGE_SIZE - 1), since;
	enum user_spaces_said other = said(looking, address, NULL, &since);

	if (other == USER_SPACES_UNSURE)
		return 0; /* readers are told not to look */
	if (piece && piece->time >= since)
		return piece->mapping.end ? untell(looking, piece->start, piece->end) : 0;
	if (other == USER_SPACES_OTHER && is_believed(looking, since)) {
		note_latest(looking->spaces->open, looking->sample);
		return 0;
	}
	if (!looking->teller->said || address >= ADDRESS_LIMIT)
		return 0;
	return untell(looking, page, page + PAGE_SIZE);
}

static int look_at(struct looking *looking, uint64_t address)
{
	const struct sample_mapping *mapping =
		mapping_of(looking->sample, address, looking->teller);

	return mapping ? agree(looking, address, mapping) : leave_open(looking, address);
}

static int look_at_all(struct looking *looking)
{
	const struct sample *sample = looking->sample;
	const uint64_t *user = sample->callchain + sample->kernel_depth;
	int error = 0;

	for (uint16_t i = 0; i < sample->user_depth && !error; i++)
		error = look_at(looking, user[i]);
	/* One without a callchain is at its RIP. */
	if (!error && sample->cpl && (!sample->user_depth || user[0] != sample->rip))
		error = look_at(looking, sample->rip);
	return error;
}

static struct space *space_of(const struct user_spaces *spaces, uint32_t pid)
{
	struct space *space = spaces->places[pid % PLACES];

	return space && space->pid == pid ? space : NULL;
}

/* Room for COUNT pieces that no sample told. */
static bool take_room(struct user_spaces *spaces, struct space *space, uint32_t count)
{
	size_t size = count * sizeof(struct piece);

	if (space->taken >= size)
		return !reserve(space, count);
	if (!guest_account_charge(spaces->account, size - space->taken))
		return false;
	space->taken = size;
	return !reserve(space, count);
}

/* Readers begin a child with what they know of its parent by then. False: that can not be kept. */
static bool copy_space(struct user_spaces *spaces, uint32_t pid, const struct space *parent)
{
	struct space **place = &spaces->places[pid % PLACES];
	struct space *child;

	if (*place == parent || (*place && (*place)->count))
		return false;
	if (!*place)
		*place = calloc(1, sizeof(**place));
	child = *place;
	if (!child || !take_room(spaces, child, parent->count))
		return false;
	memcpy(child->pieces, parent->pieces, parent->count * sizeof(child->pieces[0]));
	child->pid = pid;
	child->count = parent->count;
	child->ended = false;
	child->latest = parent->latest > child->latest ? parent->latest : child->latest;
	return true;
}

static bool was_told_of(const struct user_spaces *spaces, uint32_t pid)
{
	const struct space *space = space_of(spaces, pid);

	return (space && space->count) || doubted(spaces, pid);
}

/* And they forget who had the child's id. A fork out of ORDER does not know what had been told by
 * then. */
static void take_fork(struct user_spaces *spaces, const struct event *fork, bool order)
{
	const struct space *parent = space_of(spaces, fork->parent);
	bool late = fork->time <= spaces->moved[fork->pid % PLACES];
	bool known = order ? !late && !doubted(spaces, fork->parent)
			   : !was_told_of(spaces, fork->parent) && !was_told_of(spaces, fork->pid);

	if (space_of(spaces, fork->pid))
		space_of(spaces, fork->pid)->count = 0;
	if (known && parent && parent->count)
		known = copy_space(spaces, fork->pid, parent);
	if (known && order)
		believe(spaces, fork->pid);
	if (!known)
		doubt(spaces, fork->pid, fork->time > spaces->now ? fork->time : spaces->now);
}

/* Readers keep what they know of a process that has ended; who tells it may not. */
static void take_end(struct user_spaces *spaces, const struct event *end)
{
	struct space *space = space_of(spaces, end->pid);

	if (!space || !(space->ended || end->first))
		return;
	if (space->count)
		doubt(spaces, end->pid, end->time > spaces->now ? end->time : spaces->now);
	space->count = 0;
	space->ended = true;
}

static void take_first_event(struct user_spaces *spaces, bool order)
{
	const struct event *event = &spaces->events[spaces->first_event];

	if (event->parent)
		take_fork(spaces, event, order && event->time >= spaces->now);
	else
		take_end(spaces, event);
	spaces->first_event = (spaces->first_event + 1) % EVENTS;
	spaces->event_count--;
}

/* A sample of TIME comes: all before it was told. */
static void take_events(struct user_spaces *spaces, uint64_t time)
{
	while (spaces->event_count && spaces->events[spaces->first_event].time <= time)
		take_first_event(spaces, true);
	if (time > spaces->now)
		spaces->now = time;
}

static void add_event(struct user_spaces *spaces, const struct event *event)
{
	if (spaces->event_count == EVENTS)
		take_first_event(spaces, false);
	spaces->events[(spaces->first_event + spaces->event_count++) % EVENTS] = *event;
}

void user_spaces_fork(struct user_spaces *spaces, uint32_t child, uint32_t parent, uint64_t time)
{
	add_event(spaces, &(struct event){ .pid = child, .parent = parent, .time = time });
}

void user_spaces_end(struct user_spaces *spaces, uint32_t pid, uint32_t tid, uint64_t time)
{
	add_event(spaces, &(struct event){ .pid = pid, .first = pid == tid, .time = time });
}

bool user_spaces_is_open(const struct user_spaces *spaces, uint32_t pid, uint64_t time,
			 uint32_t error)
{
	uint64_t open = spaces->open[pid % PLACES];

	return open && open + error >= time;
}

/* Beside what was told in time there may be what was written late; both are covered. */
void user_spaces_open(const struct user_spaces *spaces, uint32_t pid, uint64_t time, uint32_t error,
		      uint64_t *times)
{
	times[0] = time > error ? time - error : 0;
	times[1] = later(times[0], spaces->moved[pid % PLACES]);
	times[2] = later(times[1], time);
}

/* What PID did at TIME is written for BEHIND, if that is later. */
static uint64_t move(struct user_spaces *spaces, uint32_t pid, uint64_t time, uint64_t behind)
{
	if (behind <= time) {
		spaces->in_time = later(spaces->in_time, time);
		return time;
	}
	return spaces->moved[pid % PLACES] = behind;
}

uint64_t user_spaces_time(struct user_spaces *spaces, uint32_t pid, uint64_t time, bool maps)
{
	uint64_t behind = spaces->moved[pid % PLACES];

	return move(spaces, pid, time,
		    maps ? later(behind, spaces->out[pid % PLACES] + 1) : behind);
}

uint64_t user_spaces_fork_time(struct user_spaces *spaces, uint32_t child, uint32_t parent,
			       uint64_t time)
{
	uint64_t behind = later(spaces->moved[child % PLACES], spaces->moved[parent % PLACES]);

	return move(spaces, child, time, later(behind, spaces->out[child % PLACES] + 1));
}

/* The part of PIECE that lies in RANGE. */
static struct sample_mapping part_of(const struct piece *piece, const struct sample_mapping *range)
{
	struct sample_mapping part = piece->mapping;

	part.start = piece->start > range->start ? piece->start : range->start;
	part.end = piece->end < range->end ? piece->end : range->end;
	part.offset += part.start - piece->mapping.start;
	return part;
}

static int tell_again(uint32_t pid, uint64_t time, const struct piece *piece,
		      const struct sample_mapping *range, const struct user_spaces_teller *teller)
{
	struct sample_mapping part = part_of(piece, range);

	if (piece->mapping.end && teller->is_named(teller->context, &part))
		return teller->map(teller->context, pid, time, &part);
	return teller->unmap(teller->context, pid, time, part.start, part.end);
}

int user_spaces_written(struct user_spaces *spaces, uint32_t pid, uint64_t time, uint64_t written,
			const struct sample_mapping *range, const struct user_spaces_teller *teller)
{
	struct space *space = space_of(spaces, pid);
	int error = 0;

	if (!space)
		return 0;
	for (uint32_t i = find(space, range->start); i < space->count && !error; i++)
		if (space->pieces[i].start < range->end && space->pieces[i].time >= time)
			error = tell_again(pid, written, &space->pieces[i], range, teller);
	return error;
}

int user_spaces_sample(struct user_spaces *spaces, const struct sample *sample,
		       const struct user_spaces_teller *teller, bool *late)
{
	const struct space *place = spaces->places[sample->pid % PLACES];

	*late = false;
	take_events(spaces, sample->time);
	if (sample->pid == SAMPLE_TASK_UNKNOWN || !sample->pid)
		return 0;
	/* Also where the place is another process's: what was told of that is later, and stays so.
	 */
	*late = (place && sample->time < place->latest) ||
		sample->time < spaces->moved[sample->pid % PLACES];
	if (*late)
		return 0;
	note_latest(spaces->out, sample);
	return look_at_all(
		&(struct looking){ spaces, sample, teller, space_of(spaces, sample->pid) });
}

void user_spaces_begin(struct user_spaces *spaces, uint32_t pid)
{
	struct space *space = space_of(spaces, pid);

	if (space)
		space->count = 0;
}
