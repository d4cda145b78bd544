/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/jit_code.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "vmm/symbols/jit_image.h"

#define BUCKETS 256u
/* Replaced functions that are kept per map; the oldest ones are dropped. */
#define REPLACED_MAX 256u
/* Maps of one process. */
#define MAPS_MAX 8u
/* The birth of a file has the resolution of the guest's tick. */
#define BIRTH_ERROR (20 * NS_PER_MS)
#define NO_OFFSET   UINT64_MAX

/* A line of a map: written in (from_least, from_most], and valid until one of (to_least,
 * to_most]. */
struct function {
	struct jit_range range; /* the first member: functions are in trees */
	uint64_t from_least, from_most;
	uint64_t to_least, to_most; /* UINT64_MAX: still valid */
	uint64_t offset;            /* offset in the image; NO_OFFSET: none yet */
	bool first;                 /* by the map, nothing was at its addresses before */
	struct function *next;      /* that was replaced after this one */
	char name[];
};

/* A map over time, from its beginning to its end or that of the program. */
struct map {
	struct map *older;
	void *functions; /* tree, tsearch(3): valid ones, no two at one address */
	struct function *replaced, **last;
	unsigned int replaced_count;
	uint64_t forgotten; /* ns: up to this time some replaced functions were forgotten, */
	uint64_t forgotten_start, forgotten_end; /* which were between these addresses */
	uint64_t known;             /* ns: all lines of the map at this time were reported */
	bool finished;              /* rounds no longer advance it */
	uint64_t from;              /* ns: it began no earlier */
	uint64_t scanned;           /* ns: the map was scanned, and belonged to the program */
	uint64_t ran;               /* ns, after its end: the program certainly ran up to here */
	uint64_t to_least, to_most; /* as in struct function */
	size_t bytes;
};

/* Overhead of an allocation, and of a tree node, which is another one. */
#define HEAP_COST 16u
#define NODE_COST 48u
#define MAP_COST  (sizeof(struct map) + HEAP_COST)

struct process {
	struct process *next; /* in the bucket */
	uint32_t pid;
	struct map *map;  /* the newest; NULL: none so far */
	bool open;        /* is open: lines belong to it */
	uint64_t ended;   /* ns: a program of the process ended last at this time or later; or may
			  have, if that was    lost */
	uint64_t dropped; /* ns: nothing is known of times up to here */
	bool given_up;
	struct jit_image image;
	size_t image_bytes;
};

struct jit_code {
	struct guest_account *account;
	struct process *buckets[BUCKETS];
	struct process *processes[JIT_CODE_PROCESSES_MAX]; /* owned; all, in any order */
	size_t bytes;
	struct jit_code_statistics statistics; /* with the number of processes */
};

struct jit_code *jit_code_new(struct guest_account *account)
{
	struct jit_code *code = calloc(1, sizeof(*code));

	if (code)
		code->account = account;
	return code;
}

static bool charge(struct jit_code *code, size_t size)
{
	if (code->bytes + size > JIT_CODE_MEMORY || !guest_account_charge(code->account, size))
		return false;
	code->bytes += size;
	return true;
}

static void release(struct jit_code *code, size_t size)
{
	code->bytes -= size;
	guest_account_release(code->account, size);
}

static uint64_t least(const struct sideband *record)
{
	return time_before(record->time, record->time_error);
}

static uint64_t most(const struct sideband *record)
{
	return time_after(record->time, record->time_error);
}

int jit_range_compare(const void *left, const void *right)
{
	const struct jit_range *a = left, *b = right;

	return a->end <= b->start ? -1 : a->start >= b->end;
}

void *jit_range_find(void *const *tree, uint64_t start, uint64_t end)
{
	const struct jit_range key = { start, end };
	void **found = tfind(&key, tree, jit_range_compare);

	return found ? *found : NULL;
}

static size_t cost_of(const char *name)
{
	return sizeof(struct function) + strlen(name) + 1 + HEAP_COST + NODE_COST;
}

/* --- maps over time --------------------------------------------------------------- */

static void drop_map(struct jit_code *code, struct process *process, struct map *map)
{
	process->dropped = time_later(process->dropped, map->to_most);
	while (map->replaced) {
		struct function *function = map->replaced;

		map->replaced = function->next;
		free(function);
	}
	tdestroy(map->functions, free);
	release(code, map->bytes);
	free(map);
}

static void free_maps(struct jit_code *code, struct process *process)
{
	while (process->map) {
		struct map *map = process->map;

		process->map = map->older;
		drop_map(code, process, map);
	}
	process->open = false;
}

/* The time of forgotten maps becomes unknown. */
static void drop_old_maps(struct jit_code *code, struct process *process)
{
	struct map **at = &process->map;

	for (unsigned int i = 0; *at && i < MAPS_MAX; i++)
		at = &(*at)->older;
	if (!*at)
		return;
	drop_map(code, process, *at);
	*at = NULL;
}

/* The open map, if any, ends in (FROM, TO]. */
static void end_map(struct process *process, uint64_t from, uint64_t to)
{
	struct map *map = process->open ? process->map : NULL;

	if (map) {
		map->to_least = time_before(from, JIT_CODE_LATE);
		map->to_most = to;
		map->ran = from;
	}
	process->open = false;
}

static bool begin_map(struct jit_code *code, struct process *process, uint64_t from,
		      uint64_t scanned)
{
	struct map *map = charge(code, MAP_COST) ? calloc(1, sizeof(*map)) : NULL;

	if (!map)
		return false;
	map->last = &map->replaced;
	map->from = from;
	map->scanned = scanned;
	map->to_least = map->to_most = map->forgotten_start = UINT64_MAX;
	map->bytes = MAP_COST;
	map->older = process->map;
	process->map = map;
	process->open = true;
	drop_old_maps(code, process);
	return true;
}

/* --- processes -------------------------------------------------------------------- */

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
	code->processes[code->statistics.processes++] = process;
	return process;
}

static void free_process(struct jit_code *code, struct process *process)
{
	free_maps(code, process);
	release(code, process->image_bytes);
	jit_image_free(&process->image);
	free(process);
}

void jit_code_free(struct jit_code *code)
{
	for (size_t i = 0; code && i < code->statistics.processes; i++)
		free_process(code, code->processes[i]);
	free(code);
}

static void give_up(struct jit_code *code, struct process *process)
{
	free_maps(code, process);
	if (!process->given_up)
		code->statistics.refused++;
	process->given_up = true;
}

static void drop_ended(struct jit_code *code, struct process *process)
{
	struct map **at = process->open ? &process->map->older : &process->map;

	while (*at) {
		struct map *map = *at;

		*at = map->older;
		drop_map(code, process, map);
	}
}

/* Ended maps are dropped first. */
static bool make_room(struct jit_code *code, size_t size)
{
	if (charge(code, size))
		return true;
	for (size_t i = 0; i < code->statistics.processes; i++)
		drop_ended(code, code->processes[i]);
	return charge(code, size);
}

/* --- lines ------------------------------------------------------------------------ */

/* The function that was replaced first. */
static void forget_replaced(struct jit_code *code, struct map *map)
{
	struct function *function = map->replaced;
	size_t size = cost_of(function->name);

	map->forgotten = time_later(map->forgotten, function->to_most);
	if (function->range.start < map->forgotten_start)
		map->forgotten_start = function->range.start;
	if (function->range.end > map->forgotten_end)
		map->forgotten_end = function->range.end;
	map->replaced = function->next;
	map->replaced_count--;
	map->bytes -= size;
	release(code, size);
	free(function);
}

/* Another function is at its address since (FROM, TO]. */
static void replace(struct jit_code *code, struct map *map, struct function *function,
		    uint64_t from, uint64_t to)
{
	tdelete(function, &map->functions, jit_range_compare);
	function->to_least = from;
	function->to_most = to;
	*map->last = function;
	map->last = &function->next;
	if (++map->replaced_count > REPLACED_MAX)
		forget_replaced(code, map);
}

static bool is_first(const struct map *map, const struct function *function)
{
	const struct function *replaced = map->replaced;

	while (replaced && jit_range_compare(&replaced->range, &function->range))
		replaced = replaced->next;
	return !replaced && (function->range.end <= map->forgotten_start ||
			     function->range.start >= map->forgotten_end);
}

static bool is_same(const struct function *function, const struct sideband_jit_code *line)
{
	return function->range.start == line->start &&
	       function->range.end == line->start + line->length &&
	       !strcmp(function->name, line->name);
}

static struct function *make_function(const struct map *map, const struct sideband_jit_code *line)
{
	uint64_t since = line->since > map->from ? line->since : map->from;
	size_t name = strlen(line->name) + 1;
	struct function *function = malloc(sizeof(*function) + name);

	if (!function)
		return NULL;
	*function = (struct function){
		.range = { line->start, line->start + line->length },
		.from_least = time_before(since, JIT_CODE_LATE),
		.from_most = most(&line->head),
		.to_least = UINT64_MAX,
		.to_most = UINT64_MAX,
		.offset = NO_OFFSET,
	};
	memcpy(function->name, line->name, name);
	return function;
}

static bool add(struct jit_code *code, struct map *map, const struct sideband_jit_code *line)
{
	struct function *function, *older;
	size_t size = cost_of(line->name);

	if (!make_room(code, size))
		return false;
	map->bytes += size;
	function = make_function(map, line);
	if (!function)
		return false;
	while ((older = jit_range_find(&map->functions, function->range.start,
				       function->range.end)))
		replace(code, map, older, function->from_least, function->from_most);
	function->first = is_first(map, function);
	if (!tsearch(function, &map->functions, jit_range_compare)) {
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
	function =
		jit_range_find(&process->map->functions, line->start, line->start + line->length);
	if (function && is_same(function, line))
		return; /* repeated */
	if (!add(code, process->map, line))
		give_up(code, process);
}

/* --- maps ------------------------------------------------------------------------- */

/*
 * Start of the program that the map of RECORD belongs to. After a loss, or if a process was
 * reported anew as if it had just started, the guest may confirm that it still runs the program of
 * the earlier map.
 */
static uint64_t program_began(const struct process *process, const struct sideband_jit_map *record)
{
	const struct map *map = process->map;

	if (!record->program || record->program >= process->ended)
		return process->ended;
	return map && (record->program <= map->scanned || record->program <= map->ran)
		       ? map->from
		       : record->program;
}

/* A file created before the program started may have lines of another one. */
static bool may_begin(const struct process *process, const struct sideband_jit_map *record,
		      uint64_t began)
{
	if (process->given_up || least(&record->head) < process->ended)
		return false;
	return !record->since ||
	       time_after(record->since, 2ull * record->head.time_error + BIRTH_ERROR) >= began;
}

static void apply_begin(struct jit_code *code, const struct sideband_jit_map *record)
{
	struct process *process = need_process(code, record->head.pid);
	uint64_t began;

	if (!process)
		return;
	began = program_began(process, record);
	/* What was known up to then stays valid. */
	if (process->open && process->map->known > least(&record->head))
		end_map(process, least(&record->head), most(&record->head));
	else if (process->open)
		end_map(process, process->map->known, most(&record->head));
	if (may_begin(process, record, began) &&
	    !begin_map(code, process, began, least(&record->head)))
		give_up(code, process);
}

static void apply_map(struct jit_code *code, const struct sideband_jit_map *record)
{
	struct process *process;

	if (!record->head.pid) {
		for (size_t i = 0; i < code->statistics.processes; i++)
			if (code->processes[i]->open)
				code->processes[i]->map->finished = true;
		return;
	}
	if (record->head.flags & SIDEBAND_JIT_BEGIN)
		apply_begin(code, record);
	process = find_process(code, record->head.pid);
	if (!process || !process->open)
		return;
	process->map->finished = record->head.flags & SIDEBAND_JIT_INCOMPLETE;
	if (record->head.flags & SIDEBAND_JIT_END)
		process->map->known = UINT64_MAX; /* no line will follow */
}

static void apply_round(struct process *process, uint64_t time)
{
	if (process->open && !process->map->finished && time > process->map->known)
		process->map->known = time;
}

/* Another program starts, or another process with the same id. */
static void end_program(struct jit_code *code, const struct sideband *record)
{
	struct process *process = find_process(code, record->pid);

	if (!process)
		return;
	end_map(process, least(record), most(record));
	process->ended = time_later(process->ended, least(record));
}

/* A CPU may report a loss after later events. A map that was scanned since keeps its own end. */
static void doubt_end(struct map *map, uint64_t from, uint64_t until)
{
	if (map->ran > from)
		map->ran = from;
	if (map->scanned <= until && map->to_least > time_before(from, JIT_CODE_LATE))
		map->to_least = time_before(from, JIT_CODE_LATE);
}

/* A program may start: of which process is unknown. An idle CPU reports its losses late: a map
 * that was reported since belongs to the program all the same. */
static void doubt_program(struct process *process, const struct sideband_lost *lost)
{
	uint64_t until = time_after(lost->until, lost->head.time_error);

	for (struct map *map = process->map; map; map = map->older)
		if (map != process->map || !process->open)
			doubt_end(map, least(&lost->head), until);
	if (until <= process->ended)
		return;
	end_map(process, least(&lost->head), until);
	process->ended = until;
}

void jit_code_apply(struct jit_code *code, const struct sideband *record)
{
	const struct sideband_fork *fork = (const void *)record;
	size_t count = code->statistics.processes;

	switch (record->type) {
	case SIDEBAND_JIT_MAP:
		apply_map(code, (const void *)record);
		break;
	case SIDEBAND_JIT_CODE:
		apply_line(code, (const void *)record);
		break;
	case SIDEBAND_ROUND:
		for (size_t i = 0; i < count; i++)
			apply_round(code->processes[i], least(record));
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
		for (size_t i = 0; i < count; i++)
			doubt_program(code->processes[i], (const void *)record);
		break;
	default:
		break;
	}
}

/* --- lookups ---------------------------------------------------------------------- */

bool jit_code_has(const struct jit_code *code, uint32_t pid)
{
	const struct process *process = find_process(code, pid);

	return process && process->map;
}

static bool may_be(const struct function *function, uint64_t address, uint64_t time)
{
	return address >= function->range.start && address < function->range.end &&
	       time > function->from_least && time <= function->to_most;
}

/* The only function that can have been at ADDRESS. */
static struct function *find_only(const struct map *map, uint64_t address, uint64_t time)
{
	struct function *found = jit_range_find(&map->functions, address, address + 1);

	if (found && !may_be(found, address, time))
		found = NULL;
	for (struct function *function = map->replaced; function; function = function->next) {
		if (!may_be(function, address, time))
			continue;
		if (found)
			return NULL;
		found = function;
	}
	return found && (found->first || time > map->forgotten) ? found : NULL;
}

/* The map that certainly covers TIME; NULL: none. */
static const struct map *map_at(const struct process *process, uint64_t time)
{
	const struct map *map = process->map;

	while (map && map->older && time <= map->older->to_most)
		map = map->older;
	return map && time > process->dropped && time <= map->to_least &&
			       time_after(time, JIT_CODE_LATE) <= map->known
		       ? map
		       : NULL;
}

static bool assign_offset(struct jit_code *code, struct process *process, struct function *function)
{
	size_t size = jit_image_cost(&process->image, function->name);

	if (function->offset != NO_OFFSET)
		return true;
	if (!charge(code, size))
		return false;
	if (!jit_image_add(&process->image, function->range.end - function->range.start,
			   function->name, &function->offset)) {
		function->offset = NO_OFFSET;
		release(code, size);
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
	const struct map *map = process ? map_at(process, time) : NULL;
	struct function *function = map ? find_only(map, address, time) : NULL;

	if (!function || !assign_offset(code, process, function))
		return false;
	*result = (struct jit_function){ .range = function->range,
					 .offset = function->offset,
					 .build_id = process->image.build_id,
					 .name = function->name };
	return true;
}

void jit_code_write(struct jit_code *code, struct image_symbols *names)
{
	for (size_t i = 0; i < code->statistics.processes; i++)
		jit_image_write(&code->processes[i]->image, names);
}

void jit_code_statistics(const struct jit_code *code, struct jit_code_statistics *statistics)
{
	*statistics = code->statistics;
}
