/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/jit_code.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "vmm/symbols/jit_image.h"

#define BUCKETS 256u
/* Replaced functions that are kept for a map; the oldest ones are forgotten. */
#define REPLACED_MAX 256u
/* Maps of one process. */
#define LIVES_MAX 8u
/* The birth of a file has the resolution of the guest's tick. */
#define BIRTH_ERROR (20 * NS_PER_MS)
#define NO_PLACE    UINT64_MAX

/* A line of a map: written in (from_least, from_most], and valid until one of (to_least,
 * to_most]. */
struct function {
	uint64_t start, end;
	uint64_t from_least, from_most;
	uint64_t to_least, to_most; /* UINT64_MAX: still valid */
	uint64_t place;             /* offset in the image; NO_PLACE: not asked for yet */
	bool first;                 /* by the map, nothing was at its addresses before */
	struct function *next;      /* that was replaced after this one */
	char name[];
};

/* A map over time, from its beginning to its end or that of the program. */
struct life {
	struct life *older;
	void *functions; /* tree, tsearch(3): valid ones, no two at one address */
	struct function *replaced, **last;
	unsigned int replaced_count;
	uint64_t forgotten; /* ns: up to this time some replaced functions were forgotten, */
	uint64_t forgotten_start, forgotten_end; /* which were between these addresses */
	uint64_t known;             /* ns: all lines of the map at this time were reported */
	bool finished;              /* rounds do not advance it any more */
	uint64_t from;              /* ns: it began no earlier */
	uint64_t scanned;           /* ns: the map was scanned, and belonged to the program */
	uint64_t ran;               /* ns, after its end: the program certainly ran up to here */
	uint64_t to_least, to_most; /* as in struct function */
	size_t bytes;
};

/* Overhead of an allocation, and of a tree node, which is another one. */
#define HEAP_COST 16u
#define NODE_COST 48u
#define LIFE_COST (sizeof(struct life) + HEAP_COST)

struct process {
	struct process *next; /* in the bucket */
	uint32_t pid;
	struct life *life; /* the newest; NULL: none so far */
	bool open;         /* is open: lines belong to it */
	uint64_t ended;    /* ns: a program of the process ended last at this time or later; or may
			   have, if that was    lost */
	uint64_t dropped;  /* ns: nothing is known of times up to here */
	bool given_up;
	struct jit_image image;
	size_t image_bytes;
};

struct jit_code {
	struct guest_account *account;
	struct process *buckets[BUCKETS];
	size_t bytes;
	struct jit_code_statistics statistics;
};

struct jit_code *jit_code_new(struct guest_account *account)
{
	struct jit_code *code = calloc(1, sizeof(*code));

	if (code)
		code->account = account;
	return code;
}

static bool take_bytes(struct jit_code *code, size_t size)
{
	if (code->bytes + size > JIT_CODE_MEMORY || !guest_account_charge(code->account, size))
		return false;
	code->bytes += size;
	return true;
}

static void give_bytes(struct jit_code *code, size_t size)
{
	code->bytes -= size;
	guest_account_release(code->account, size);
}

static uint64_t before(uint64_t time, uint64_t distance)
{
	return time > distance ? time - distance : 0;
}

static uint64_t finished(uint64_t time, uint64_t distance)
{
	return time < UINT64_MAX - distance ? time + distance : UINT64_MAX;
}

static uint64_t least(const struct sideband *record)
{
	return before(record->time, record->time_error);
}

static uint64_t most(const struct sideband *record)
{
	return finished(record->time, record->time_error);
}

/* Overlapping ranges are equal: a tree has one function per address, and finds any function in a
 * range. */
static int compare(const void *left, const void *right)
{
	const struct function *a = left, *b = right;

	return a->end <= b->start ? -1 : a->start >= b->end;
}

static size_t cost_of(const char *name)
{
	return sizeof(struct function) + strlen(name) + 1 + HEAP_COST + NODE_COST;
}

static struct function *find_in(const struct life *life, uint64_t start, uint64_t end)
{
	const struct function range = { .start = start, .end = end };
	void *found = tfind(&range, &life->functions, compare);

	return found ? *(struct function **)found : NULL;
}

/* --- maps over time -------------------------------------------------------------------- */

static void drop_life(struct jit_code *code, struct process *process, struct life *life)
{
	if (life->to_most > process->dropped)
		process->dropped = life->to_most;
	while (life->replaced) {
		struct function *function = life->replaced;

		life->replaced = function->next;
		free(function);
	}
	tdestroy(life->functions, free);
	give_bytes(code, life->bytes);
	free(life);
}

static void free_lives(struct jit_code *code, struct process *process)
{
	while (process->life) {
		struct life *life = process->life;

		process->life = life->older;
		drop_life(code, process, life);
	}
	process->open = false;
}

/* The time of forgotten maps becomes unknown. */
static void drop_old_lives(struct jit_code *code, struct process *process)
{
	struct life **at = &process->life;

	for (unsigned int i = 0; *at && i < LIVES_MAX; i++)
		at = &(*at)->older;
	if (!*at)
		return;
	drop_life(code, process, *at);
	*at = NULL;
}

/* The open map, if any, ends in (FROM, TO]. */
static void end_life(struct process *process, uint64_t from, uint64_t to)
{
	struct life *life = process->open ? process->life : NULL;

	if (life) {
		life->to_least = before(from, JIT_CODE_LATE);
		life->to_most = to;
		life->ran = from;
	}
	process->open = false;
}

static bool begin_life(struct jit_code *code, struct process *process, uint64_t from,
		       uint64_t scanned)
{
	struct life *life = take_bytes(code, LIFE_COST) ? calloc(1, sizeof(*life)) : NULL;

	if (!life)
		return false;
	life->last = &life->replaced;
	life->from = from;
	life->scanned = scanned;
	life->to_least = life->to_most = life->forgotten_start = UINT64_MAX;
	life->bytes = LIFE_COST;
	life->older = process->life;
	process->life = life;
	process->open = true;
	drop_old_lives(code, process);
	return true;
}

/* --- processes ---------------------------------------------------------------- */

static struct process *find_process(const struct jit_code *code, uint32_t pid)
{
	struct process *process = code->buckets[pid % BUCKETS];

	while (process && process->pid != pid)
		process = process->next;
	return process;
}

static struct process *need_process(struct jit_code *code, uint32_t pid)
{
	struct process *process = find_process(code, pid);

	if (process)
		return process;
	process = code->statistics.processes < JIT_CODE_PROCESSES_MAX ? calloc(1, sizeof(*process))
								      : NULL;
	if (!process) {
		code->statistics.refused++;
		return NULL;
	}
	process->pid = pid;
	process->next = code->buckets[pid % BUCKETS];
	code->buckets[pid % BUCKETS] = process;
	code->statistics.processes++;
	return process;
}

/* Calls EACH for every process. */
static void for_each(struct jit_code *code,
		     void (*each)(struct jit_code *, struct process *, void *), void *context)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct process *process = code->buckets[i]; process; process = process->next)
			each(code, process, context);
}

static void free_process(struct jit_code *code, struct process *process, void *ignored)
{
	(void)ignored;
	free_lives(code, process);
	give_bytes(code, process->image_bytes);
	jit_image_free(&process->image);
}

void jit_code_free(struct jit_code *code)
{
	if (!code)
		return;
	for_each(code, free_process, NULL);
	for (size_t i = 0; i < BUCKETS; i++)
		while (code->buckets[i]) {
			struct process *process = code->buckets[i];

			code->buckets[i] = process->next;
			free(process);
		}
	free(code);
}

static void give_up(struct jit_code *code, struct process *process)
{
	free_lives(code, process);
	if (!process->given_up)
		code->statistics.refused++;
	process->given_up = true;
}

static void drop_ended(struct jit_code *code, struct process *process, void *ignored)
{
	struct life **at = process->open ? &process->life->older : &process->life;

	(void)ignored;
	while (*at) {
		struct life *life = *at;

		*at = life->older;
		drop_life(code, process, life);
	}
}

/* Ended ones are dropped first. */
static bool make_room(struct jit_code *code, size_t size)
{
	if (take_bytes(code, size))
		return true;
	for_each(code, drop_ended, NULL);
	return take_bytes(code, size);
}

/* --- lines -------------------------------------------------------------------- */

/* The function that was replaced first. */
static void forget_replaced(struct jit_code *code, struct life *life)
{
	struct function *function = life->replaced;
	size_t size = cost_of(function->name);

	if (function->to_most > life->forgotten)
		life->forgotten = function->to_most;
	if (function->start < life->forgotten_start)
		life->forgotten_start = function->start;
	if (function->end > life->forgotten_end)
		life->forgotten_end = function->end;
	life->replaced = function->next;
	life->replaced_count--;
	life->bytes -= size;
	give_bytes(code, size);
	free(function);
}

/* Another function is at its address since (FROM, TO]. */
static void replace(struct jit_code *code, struct life *life, struct function *function,
		    uint64_t from, uint64_t to)
{
	tdelete(function, &life->functions, compare);
	function->to_least = from;
	function->to_most = to;
	*life->last = function;
	life->last = &function->next;
	if (++life->replaced_count > REPLACED_MAX)
		forget_replaced(code, life);
}

static bool is_first(const struct life *life, const struct function *function)
{
	const struct function *replaced = life->replaced;

	while (replaced && compare(replaced, function))
		replaced = replaced->next;
	return !replaced &&
	       (function->end <= life->forgotten_start || function->start >= life->forgotten_end);
}

static bool is_same(const struct function *function, const struct sideband_jit_code *line)
{
	return function->start == line->start && function->end == line->start + line->length &&
	       !strcmp(function->name, line->name);
}

static struct function *make_function(const struct life *life, const struct sideband_jit_code *line)
{
	uint64_t since = line->since > life->from ? line->since : life->from;
	size_t name = strlen(line->name) + 1;
	struct function *function = malloc(sizeof(*function) + name);

	if (!function)
		return NULL;
	*function = (struct function){
		.start = line->start,
		.end = line->start + line->length,
		.from_least = before(since, JIT_CODE_LATE),
		.from_most = most(&line->head),
		.to_least = UINT64_MAX,
		.to_most = UINT64_MAX,
		.place = NO_PLACE,
	};
	memcpy(function->name, line->name, name);
	return function;
}

static bool add(struct jit_code *code, struct life *life, const struct sideband_jit_code *line)
{
	struct function *function, *older;
	size_t size = cost_of(line->name);

	if (!make_room(code, size))
		return false;
	life->bytes += size;
	function = make_function(life, line);
	if (!function)
		return false;
	while ((older = find_in(life, function->start, function->end)))
		replace(code, life, older, function->from_least, function->from_most);
	function->first = is_first(life, function);
	if (!tsearch(function, &life->functions, compare)) {
		free(function);
		return false;
	}
	code->statistics.functions++;
	return true;
}

static void apply_line(struct jit_code *code, const struct sideband_jit_code *line)
{
	struct process *process = find_process(code, line->head.pid);
	struct function *function;

	if (!process || !process->open)
		return;
	function = find_in(process->life, line->start, line->start + line->length);
	if (function && is_same(function, line))
		return; /* repeated */
	if (!add(code, process->life, line))
		give_up(code, process);
}

/* --- maps --------------------------------------------------------------------- */

/*
 * Start of the program that MAP was reported for. After a loss, or if a process was reported anew
 * as if it had just started, the guest may confirm that it still runs the program of the earlier
 * map.
 */
static uint64_t program_began(const struct process *process, const struct sideband_jit_map *map)
{
	const struct life *life = process->life;

	if (!map->program || map->program >= process->ended)
		return process->ended;
	return life && (map->program <= life->scanned || map->program <= life->ran) ? life->from
										    : map->program;
}

/* A file created before the program started may have lines of another one. */
static bool may_begin(const struct process *process, const struct sideband_jit_map *map,
		      uint64_t began)
{
	if (process->given_up || least(&map->head) < process->ended)
		return false;
	return !map->since ||
	       finished(map->since, 2ull * map->head.time_error + BIRTH_ERROR) >= began;
}

static void apply_begin(struct jit_code *code, const struct sideband_jit_map *map)
{
	struct process *process = need_process(code, map->head.pid);
	uint64_t began;

	if (!process)
		return;
	began = program_began(process, map);
	/* What was known up to then stays valid. */
	if (process->open && process->life->known > least(&map->head))
		end_life(process, least(&map->head), most(&map->head));
	else if (process->open)
		end_life(process, process->life->known, most(&map->head));
	if (may_begin(process, map, began) && !begin_life(code, process, began, least(&map->head)))
		give_up(code, process);
}

static void stop_knowing(struct jit_code *code, struct process *process, void *ignored)
{
	(void)code;
	(void)ignored;
	if (process->open)
		process->life->finished = true;
}

static void apply_map(struct jit_code *code, const struct sideband_jit_map *map)
{
	struct process *process;

	if (!map->head.pid) {
		for_each(code, stop_knowing, NULL);
		return;
	}
	if (map->head.flags & SIDEBAND_JIT_BEGIN)
		apply_begin(code, map);
	process = find_process(code, map->head.pid);
	if (!process || !process->open)
		return;
	process->life->finished = map->head.flags & SIDEBAND_JIT_INCOMPLETE;
	if (map->head.flags & SIDEBAND_JIT_END)
		process->life->known = UINT64_MAX; /* no line will follow */
}

static void take_round(struct jit_code *code, struct process *process, void *context)
{
	const struct sideband *round = context;

	(void)code;
	if (process->open && !process->life->finished && least(round) > process->life->known)
		process->life->known = least(round);
}

/* Another program starts, or another process with the same id. */
static void end_program(struct jit_code *code, const struct sideband *record)
{
	struct process *process = find_process(code, record->pid);

	if (!process)
		return;
	end_life(process, least(record), most(record));
	if (least(record) > process->ended)
		process->ended = least(record);
}

/* A CPU may report an earlier loss late. A map that was scanned since has its own end. */
static void doubt_end(struct life *life, uint64_t from, uint64_t until)
{
	if (life->ran > from)
		life->ran = from;
	if (life->scanned <= until && life->to_least > before(from, JIT_CODE_LATE))
		life->to_least = before(from, JIT_CODE_LATE);
}

/* A program may start: of which process is unknown. An idle CPU reports its losses late: a map
 * that was reported since belongs to the program all the same. */
static void doubt_program(struct jit_code *code, struct process *process, void *context)
{
	const struct sideband_lost *lost = context;
	uint64_t until = finished(lost->until, lost->head.time_error);

	(void)code;
	for (struct life *life = process->life; life; life = life->older)
		if (life != process->life || !process->open)
			doubt_end(life, least(&lost->head), until);
	if (until <= process->ended)
		return;
	end_life(process, least(&lost->head), until);
	process->ended = until;
}

void jit_code_apply(struct jit_code *code, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;

	switch (record->type) {
	case SIDEBAND_JIT_MAP:
		apply_map(code, (const void *)record);
		break;
	case SIDEBAND_JIT_CODE:
		apply_line(code, (const void *)record);
		break;
	case SIDEBAND_ROUND:
		for_each(code, take_round, (void *)(uintptr_t)record);
		break;
	case SIDEBAND_COMM:
		if (record->flags & SIDEBAND_COMM_EXEC)
			end_program(code, record);
		break;
	case SIDEBAND_FORK:
		if (fork->parent_pid != record->pid)
			end_program(code, record);
		break;
	case SIDEBAND_LOST:
		for_each(code, doubt_program, (void *)(uintptr_t)record);
		break;
	default:
		break;
	}
}

/* --- lookups ---------------------------------------------------------------- */

bool jit_code_has(const struct jit_code *code, uint32_t pid)
{
	const struct process *process = find_process(code, pid);

	return process && process->life;
}

static bool may_be(const struct function *function, uint64_t address, uint64_t time)
{
	return address >= function->start && address < function->end &&
	       time > function->from_least && time <= function->to_most;
}

/* The only function that can have been at ADDRESS. */
static struct function *find_only(const struct life *life, uint64_t address, uint64_t time)
{
	struct function *found = find_in(life, address, address + 1);

	if (found && !may_be(found, address, time))
		found = NULL;
	for (struct function *function = life->replaced; function; function = function->next) {
		if (!may_be(function, address, time))
			continue;
		if (found)
			return NULL;
		found = function;
	}
	return found && (found->first || time > life->forgotten) ? found : NULL;
}

/* The map that certainly covers TIME; NULL: none. */
static const struct life *life_at(const struct process *process, uint64_t time)
{
	const struct life *life = process->life;

	while (life && life->older && time <= life->older->to_most)
		life = life->older;
	return life && time > process->dropped && time <= life->to_least &&
			       finished(time, JIT_CODE_LATE) <= life->known
		       ? life
		       : NULL;
}

static bool give_place(struct jit_code *code, struct process *process, struct function *function)
{
	size_t size = jit_image_cost(&process->image, function->name);

	if (function->place != NO_PLACE)
		return true;
	if (!take_bytes(code, size))
		return false;
	if (!jit_image_add(&process->image, function->end - function->start, function->name,
			   &function->place)) {
		function->place = NO_PLACE;
		give_bytes(code, size);
		return false;
	}
	process->image_bytes += size;
	code->statistics.named++;
	return true;
}

bool jit_code_find(struct jit_code *code, uint32_t pid, uint64_t address, uint64_t time,
		   struct jit_function *result)
{
	struct process *process = find_process(code, pid);
	const struct life *life = process ? life_at(process, time) : NULL;
	struct function *function = life ? find_only(life, address, time) : NULL;

	if (!function || !give_place(code, process, function))
		return false;
	*result = (struct jit_function){ .start = function->start,
					 .end = function->end,
					 .place = function->place,
					 .build_id = process->image.build_id,
					 .name = function->name };
	return true;
}

static void write_image(struct jit_code *code, struct process *process, void *names)
{
	(void)code;
	jit_image_write(&process->image, names);
}

void jit_code_write(struct jit_code *code, struct image_symbols *names)
{
	for_each(code, write_image, names);
}

void jit_code_statistics(const struct jit_code *code, struct jit_code_statistics *statistics)
{
	*statistics = code->statistics;
}
