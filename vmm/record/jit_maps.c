/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/jit_maps.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "vmm/guest/linux/perf_map.h"
#include "vmm/guest/linux/perf_map_file.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/record/collector_kernel_parts.h"

/* Bytes of one map that are read per scan. */
#define PART (64u << 10)
/* ns: first interval of retries for a process without a map, or not found; it grows. */
#define WAIT_FIRST (50 * NS_PER_MS)
#define WAIT_MOST  (1000 * NS_PER_MS)
/* Finding a process walks the whole list of tasks. If that took long, others wait for the next
 * scan; all of it gets 1/SHARE of the time. */
#define SEARCH_ENOUGH (NS_PER_MS / 10)
#define SEARCH_SHARE  20

enum state {
	STATE_FREE,
	STATE_SOUGHT,  /* to be found */
	STATE_MISSING, /* not found, and not sampled since */
	STATE_NO_MAP,  /* found */
	STATE_KNOWN,   /* with its map, complete as of the latest scan, */
	STATE_PARTIAL, /* or incomplete */
};

struct followed {
	enum state state;
	struct perf_map_file file; /* with SOUGHT and MISSING only pid */
	uint64_t seen;       /* ns: the program was running; whether it was before is unknown */
	uint64_t since;      /* ns: it was running, and all lines of its map are reported */
	uint64_t next, wait; /* ns: next try for a process without a map, or not found */
};

struct jit_maps {
	struct image_parser *parser;
	struct followed followed[JIT_MAPS_MAX];
	size_t turn;          /* after the one that was searched for last */
	uint64_t next_search; /* ns */
	uint8_t text[PART];
};

struct jit_maps *jit_maps_new(struct image_parser *parser)
{
	struct jit_maps *maps = calloc(1, sizeof(*maps));

	if (maps)
		maps->parser = parser;
	return maps;
}

void jit_maps_free(struct jit_maps *maps)
{
	free(maps);
}

/* --- followed processes ----------------------------------------------------------- */

static bool runs_made_code(const struct guest_kernel *kernel, const struct sample *sample)
{
	const struct sample_mapping *mappings = sample_mappings(sample);

	for (uint16_t i = 0; i < sample->mappings; i++) {
		const struct user_image *image =
			mappings[i].images == user_images_generation(kernel->images)
				? user_images_at(kernel->images, mappings[i].image)
				: NULL;

		if (image && mappings[i].flags & PROT_EXEC &&
		    user_image_kind(image) == USER_IMAGE_ANONYMOUS)
			return true;
	}
	return false;
}

static struct followed *find(struct jit_maps *maps, uint32_t pid)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps->followed[i].state != STATE_FREE && maps->followed[i].file.pid == pid)
			return &maps->followed[i];
	return NULL;
}

/* If there is no room, replaces one that is not there, or has had no map for long. */
static struct followed *find_room(struct jit_maps *maps)
{
	struct followed *idle = NULL;

	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		struct followed *followed = &maps->followed[i];

		if (followed->state == STATE_FREE)
			return followed;
		if (followed->state == STATE_MISSING ||
		    (followed->state == STATE_NO_MAP && followed->wait == WAIT_MOST))
			idle = followed;
	}
	return idle;
}

void jit_maps_sample(struct jit_maps *maps, const struct guest_kernel *kernel,
		     const struct sample *sample)
{
	struct followed *followed;

	if (!kernel->perf_maps.known || !kernel->images || !sample->mappings ||
	    sample->pid >= SAMPLE_TASK_LIMIT || !runs_made_code(kernel, sample))
		return;
	followed = find(maps, sample->pid);
	if (!followed && (followed = find_room(maps)))
		*followed =
			(struct followed){ .state = STATE_MISSING, .file = { .pid = sample->pid } };
	if (followed && followed->state == STATE_MISSING)
		followed->state = STATE_SOUGHT;
}

/* --- reports ---------------------------------------------------------------------- */

/* Reports of PID after TIME are about another program, or another map of it. The end of the last
 * one needs no report: after its last round nothing is known of it. */
static void report_end(struct jit_code *code, uint32_t pid, uint64_t time)
{
	struct sideband_comm exec = {
		.head = sideband_head(SIDEBAND_COMM, sizeof(exec), time, pid),
	};

	exec.head.flags = SIDEBAND_COMM_EXEC;
	jit_code_apply(code, &exec.head);
}

static void report_map(struct jit_code *code, uint32_t pid, uint64_t time, uint16_t flags)
{
	struct sideband_jit_map map = {
		.head = sideband_head(SIDEBAND_JIT_MAP, sizeof(map), time, pid),
	};

	map.head.flags = flags;
	jit_code_apply(code, &map.head);
}

/* Lines that were in the map of PID at TIME, and not at SINCE. */
struct new_lines {
	struct jit_code *code;
	uint32_t pid;
	uint64_t since, time;
};

static void report_line(void *context, const struct perf_map_line *line)
{
	const struct new_lines *lines = context;
	union {
		struct sideband_jit_code code;
		uint8_t bytes[sizeof(struct sideband_jit_code) + PERF_MAP_NAME_MAX + 8];
	} record;

	record.code = (struct sideband_jit_code){
		.head = sideband_head(SIDEBAND_JIT_CODE,
				      sideband_size(sizeof(record.code), line->name), lines->time,
				      lines->pid),
		.start = line->start,
		.length = line->length,
		.since = lines->since,
	};
	memcpy(record.code.name, line->name, strlen(line->name) + 1);
	jit_code_apply(lines->code, &record.code.head);
}

static void report_round(struct jit_code *code, uint64_t time)
{
	const struct sideband round = sideband_head(SIDEBAND_ROUND, sizeof(round), time, 0);

	jit_code_apply(code, &round);
}

static bool is_reported(const struct followed *followed)
{
	return followed->state == STATE_KNOWN || followed->state == STATE_PARTIAL;
}

/* --- scans ------------------------------------------------------------------------ */

/* A JIT may run a function before it writes the line, but not before its program started. */
static uint64_t not_before(const struct followed *followed)
{
	uint64_t program = followed->seen + JIT_CODE_LATE;

	return followed->since > program ? followed->since : program;
}

/* It ended after the map was last read completely; the process may go on, by STATE. */
static void apply_end(struct followed *followed, struct jit_code *code,
		      const struct collector_scan *scan, enum state state)
{
	if (is_reported(followed))
		report_end(code, followed->file.pid, scan->ended);
	followed->state = state;
	followed->wait = followed->next = 0;
}

static void apply_lines(struct jit_maps *maps, struct followed *followed, struct jit_code *code,
			const struct collector_scan *scan, struct span lines, bool more)
{
	struct new_lines found = { .code = code,
				   .pid = followed->file.pid,
				   .since = not_before(followed),
				   .time = scan->ended };
	uint16_t flags = (is_reported(followed) ? 0 : SIDEBAND_JIT_BEGIN) |
			 (more ? SIDEBAND_JIT_INCOMPLETE : 0);
	enum state state = more ? STATE_PARTIAL : STATE_KNOWN;
	int error;

	if (state != followed->state)
		report_map(code, followed->file.pid, scan->ended, flags);
	error = lines.size ? image_parser_lines(maps->parser, lines, report_line, &found) : 0;
	followed->state = state;
	if (!more)
		followed->since = scan->begun;
	if (error)
		apply_end(followed, code, scan, STATE_NO_MAP);
}

static void wait_longer(struct followed *followed, uint64_t now)
{
	followed->wait = followed->wait ? 2 * followed->wait : WAIT_FIRST;
	if (followed->wait > WAIT_MOST)
		followed->wait = WAIT_MOST;
	followed->next = now + followed->wait;
}

static void apply_none(struct followed *followed, const struct collector_scan *scan)
{
	followed->state = STATE_NO_MAP;
	followed->since = scan->begun;
	wait_longer(followed, scan->begun);
}

static void apply_unknown(struct followed *followed, struct jit_code *code,
			  const struct collector_scan *scan)
{
	if (followed->state != STATE_KNOWN)
		return;
	report_map(code, followed->file.pid, scan->ended, SIDEBAND_JIT_INCOMPLETE);
	followed->state = STATE_PARTIAL;
}

static void apply_scan(struct jit_maps *maps, struct followed *followed, struct jit_code *code,
		       const struct collector_scan *scan, enum perf_map_result found,
		       struct span lines)
{
	switch (found) {
	case PERF_MAP_ENDED:
		apply_end(followed, code, scan, STATE_FREE);
		break;
	case PERF_MAP_REPLACED:
		apply_end(followed, code, scan, STATE_NO_MAP);
		break;
	case PERF_MAP_NONE:
		apply_none(followed, scan);
		break;
	case PERF_MAP_UNKNOWN:
		apply_unknown(followed, code, scan);
		break;
	case PERF_MAP_MORE:
	case PERF_MAP_READ:
		apply_lines(maps, followed, code, scan, lines, found == PERF_MAP_MORE);
		break;
	}
}

/* The program was running when it was read, and perhaps not before. */
static void begin(struct followed *followed, const struct guest_kernel *kernel,
		  const struct guest_view *view, uint64_t now)
{
	uint32_t pid = followed->file.pid;

	if (!perf_map_file_begin(&followed->file, kernel, view, pid)) {
		followed->state = STATE_MISSING;
		wait_longer(followed, now);
		return;
	}
	followed->seen = followed->since = collector_scan_latest();
	followed->state = STATE_NO_MAP;
	followed->wait = followed->next = 0;
}

/* Each process in turn, whichever is requested meanwhile. */
static struct followed *next_sought(struct jit_maps *maps, uint64_t now)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		size_t slot = (maps->turn + i) % JIT_MAPS_MAX;
		struct followed *followed = &maps->followed[slot];

		if (followed->state == STATE_SOUGHT && followed->next <= now) {
			maps->turn = slot + 1;
			return followed;
		}
	}
	return NULL;
}

static void search(struct jit_maps *maps, const struct guest_kernel *kernel,
		   const struct guest_view *view, uint64_t now)
{
	uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID), took = 0;
	struct followed *followed;

	if (now < maps->next_search)
		return;
	while (took < SEARCH_ENOUGH && (followed = next_sought(maps, now))) {
		begin(followed, kernel, view, now);
		took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
	}
	maps->next_search = now + SEARCH_SHARE * took;
}

/* False: another kernel may have been running, so the result is void. */
static bool scan_map(struct jit_maps *maps, struct followed *followed,
		     const struct guest_kernel *kernel, const struct guest_view *view,
		     bool (*runs)(void *), void *context, struct jit_code *code)
{
	const struct perf_map_file before = followed->file;
	struct collector_scan scan = collector_scan_begin();
	size_t size = sizeof(maps->text);
	enum perf_map_result found =
		perf_map_file_read(&followed->file, kernel, view, maps->text, &size);

	collector_scan_end(&scan);
	if (!runs(context)) {
		followed->file = before;
		return false;
	}
	apply_scan(maps, followed, code, &scan, found, span_of(maps->text, size));
	return true;
}

/* Processes found a moment ago may belong to another kernel. */
static void find_again(struct jit_maps *maps)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps->followed[i].state == STATE_NO_MAP)
			maps->followed[i].state = STATE_SOUGHT;
}

void jit_maps_scan(struct jit_maps *maps, const struct guest_kernel *kernel,
		   const struct guest_view *view, bool (*runs)(void *context), void *context,
		   struct jit_code *code)
{
	struct collector_scan round = collector_scan_begin();
	bool any = false;

	search(maps, kernel, view, round.begun);
	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		struct followed *followed = &maps->followed[i];

		if (followed->state == STATE_FREE || followed->state == STATE_SOUGHT ||
		    followed->state == STATE_MISSING || followed->next > round.begun)
			continue;
		if (!scan_map(maps, followed, kernel, view, runs, context, code)) {
			find_again(maps);
			return;
		}
		any |= is_reported(followed);
	}
	if (any)
		report_round(code, round.begun);
}

/* The programs go on, and others may report the same maps from their beginning. */
void jit_maps_end(struct jit_maps *maps, struct jit_code *code)
{
	uint64_t now = collector_scan_latest();

	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		struct followed *followed = &maps->followed[i];

		if (is_reported(followed))
			report_map(code, followed->file.pid, now, SIDEBAND_JIT_INCOMPLETE);
		followed->state = STATE_FREE;
	}
}
