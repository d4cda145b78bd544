// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit_files.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "guest-agent/jit_map.h"
#include "guest-agent/timing.h"
#include "shared/span.h"

/* Most processes with code of their own making never have a map. */
#define FIRST_WAIT   100u /* ms */
#define LONGEST_WAIT 6400u

/* Processes are asked so often whether they have ended. */
#define END_INTERVAL 1000u /* ms */

struct followed {
	struct jit_map map; /* not in use while `pid` is 0 */
	uint32_t pid;
	bool wanted; /* in this session; else it is only remembered which program runs */
	bool told;   /* something of the file */
	bool behind; /* that was said */
	uint64_t
		begun; /* ns of clock_raw(): by then the process ran the program that it runs now */
	uint64_t since; /* of agent_jit_map, for what comes next */
	uint64_t waits; /* ms: since then, for a file, or to be wanted again */
	uint64_t next;  /* ms: when to look for a file; */
	uint64_t wait;  /* and how long before the time after that */
	uint64_t asked; /* ms: when it was seen that the process has not ended */
};

/* Of one look. */
struct look {
	struct output *output;
	bool more; /* there are lines that it did not tell */
};

static struct followed maps[JIT_MAPS_MAX];
static size_t first; /* to be looked at: each in turn */

/* Of all maps together, however often they are looked at. */
static struct {
	size_t left;   /* bytes of lines that may be told, */
	uint64_t time; /* as of then, ms */
} pace;

/* Each ms adds its part of an interval's; no more than one interval's are kept. */
static void go_on_with_pace(void)
{
	uint64_t now = clock_raw_ms(), passed = now - pace.time;

	if (passed < JIT_MAPS_INTERVAL_MS)
		pace.left += passed * JIT_MAPS_PART / JIT_MAPS_INTERVAL_MS;
	if (passed >= JIT_MAPS_INTERVAL_MS || pace.left > JIT_MAPS_PART)
		pace.left = JIT_MAPS_PART;
	pace.time = now;
}

static void stop_following(struct followed *followed)
{
	jit_map_end(&followed->map);
	followed->pid = 0;
}

static bool is_less_needed(const struct followed *one, const struct followed *other)
{
	return one->wanted != other->wanted ? !one->wanted : one->waits < other->waits;
}

/* Who is only remembered makes room for others; then who has waited longest for a file, as most
 * never have one. */
static struct followed *make_room(void)
{
	struct followed *longest = NULL;

	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps[i].map.fd < 0 && !maps[i].told && !maps[i].behind &&
		    (!longest || is_less_needed(&maps[i], longest)))
			longest = &maps[i];
	if (longest)
		stop_following(longest);
	return longest;
}

static struct followed *find(uint32_t pid)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps[i].pid == pid)
			return &maps[i];
	return NULL;
}

/* Its map will be told from its beginning. */
static void begin(struct followed *followed)
{
	jit_map_close(&followed->map);
	followed->wanted = true;
	followed->told = followed->behind = false;
	followed->since = followed->next = 0;
	followed->waits = clock_raw_ms();
	followed->wait = FIRST_WAIT;
}

static void follow(struct followed *place, uint32_t pid)
{
	*place = (struct followed){ 0 };
	if (jit_map_begin(&place->map, (pid_t)pid))
		return;
	place->begun = clock_raw();
	place->pid = pid;
	begin(place);
}

void jit_maps_request(uint32_t pid)
{
	struct followed *place;

	if (!pid || pid > INT32_MAX)
		return;
	place = find(pid);
	if (place && jit_map_process(&place->map) == JIT_MAP_RUNS) {
		begin(place);
		return;
	}
	if (place)
		stop_following(place);
	place = find(0);
	if (!place)
		place = make_room();
	if (place)
		follow(place, pid);
}

/* ms; 0: it may be a younger one. */
static uint32_t age_of_program(const struct followed *followed, uint64_t time)
{
	uint64_t age = (time - followed->begun) / NS_PER_MS;

	if (!jit_map_detects_exec(&followed->map))
		return 0;
	return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
}

/* There is room for it. */
static void tell(struct followed *followed, struct look *look, uint32_t flags, struct span lines)
{
	struct agent_jit_map *message =
		output_message(look->output, AGENT_JIT_MAP, sizeof(*message) + lines.size);

	message->since = followed->since;
	message->time = clock_raw();
	message->pid = followed->pid;
	message->flags = flags;
	message->size = (uint32_t)lines.size;
	message->program =
		flags & AGENT_JIT_MAP_BEGIN ? age_of_program(followed, message->time) : 0;
	if (lines.size)
		memcpy(message->lines, lines.data, lines.size);
	followed->behind = flags & AGENT_JIT_MAP_INCOMPLETE;
}

static void look_for_file(struct followed *followed)
{
	uint64_t now = clock_raw_ms();

	if (now < followed->next)
		return;
	followed->next = now + followed->wait;
	followed->wait = followed->wait < LONGEST_WAIT ? 2 * followed->wait : LONGEST_WAIT;
	followed->told = false;
	jit_map_open(&followed->map, &followed->since);
}

/* What is told so far is all that will be: of what comes nothing is known. */
static void give_up(struct followed *followed, struct look *look)
{
	tell(followed, look, AGENT_JIT_MAP_INCOMPLETE, span_of(NULL, 0));
	stop_following(followed);
}

/* What stood in the map at TIME and was not told, as far as it may be. */
static void tell_new(struct followed *followed, struct look *look, uint64_t time)
{
	static char lines[JIT_MAPS_PART];
	bool more = jit_map_left(&followed->map) > pace.left;
	ssize_t got = pace.left ? jit_map_read(&followed->map, lines, pace.left) : 0;

	if (got == -EFBIG && pace.left < sizeof(lines))
		got = 0; /* next time there is more room for it */
	if (got < 0 || (!followed->told && jit_map_process(&followed->map) == JIT_MAP_EXEC)) {
		give_up(followed, look);
		return;
	}
	if (got || !followed->told || followed->behind != more)
		tell(followed, look,
		     (followed->told ? 0 : AGENT_JIT_MAP_BEGIN) |
			     (more ? AGENT_JIT_MAP_INCOMPLETE : 0),
		     span_of(lines, (size_t)got));
	followed->told = true;
	if (!more)
		followed->since = time;
	pace.left -= (size_t)got;
	look->more |= more;
}

/* It may come to be the process's again. Until what stands in it is told, what the map says is not
 * known. */
static void replace_file(struct followed *followed, struct look *look)
{
	jit_map_close(&followed->map);
	followed->wait = FIRST_WAIT;
	followed->next = 0;
	look_for_file(followed);
	if (!followed->behind)
		tell(followed, look, AGENT_JIT_MAP_INCOMPLETE, span_of(NULL, 0));
}

static enum jit_map_process ask_process(struct followed *followed)
{
	uint64_t now = clock_raw_ms();

	if (now < followed->asked + END_INTERVAL)
		return JIT_MAP_RUNS;
	followed->asked = now;
	return jit_map_process(&followed->map);
}

/* Of another program it is no longer known that it is the one that was told of. */
static void look_at_unwanted(struct followed *followed)
{
	if (ask_process(followed) != JIT_MAP_RUNS)
		stop_following(followed);
}

static void look_at(struct followed *followed, struct look *look)
{
	enum jit_map_process process = ask_process(followed); /* before the last look */
	uint64_t time = clock_raw();
	enum jit_map_change found;

	/* Its kernel told of that, but may have lost it: another program's map is asked for anew.
	 */
	if (process == JIT_MAP_EXEC) {
		give_up(followed, look);
		return;
	}
	if (followed->map.fd < 0)
		look_for_file(followed);
	found = followed->map.fd < 0 ? JIT_MAP_UNCHANGED : jit_map_poll(&followed->map);
	if (found == JIT_MAP_REPLACED)
		replace_file(followed, look);
	else if (followed->map.fd >= 0 &&
		 (found == JIT_MAP_GREW || followed->behind || !followed->told))
		tell_new(followed, look, time);
	else
		followed->since = time;
	/* The rest of a file that is open is still to be told; of one that may not be, nothing is.
	 */
	if (process != JIT_MAP_ENDED || !followed->pid ||
	    (followed->behind && followed->map.fd >= 0))
		return;
	if (followed->told && !followed->behind)
		tell(followed, look, AGENT_JIT_MAP_END, span_of(NULL, 0));
	stop_following(followed);
}

enum jit_maps_result jit_maps_send(struct output *output)
{
	struct look look = { .output = output };

	go_on_with_pace();
	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		struct followed *followed = &maps[(first + i) % JIT_MAPS_MAX];

		if (!followed->pid)
			continue;
		if (!followed->wanted) {
			look_at_unwanted(followed);
			continue;
		}
		/* The lines, and that the process has ended. */
		if (output_room(output) < pace.left + 256)
			return JIT_MAPS_NO_ROOM;
		look_at(followed, &look);
	}
	first = (first + 1) % JIT_MAPS_MAX;
	return look.more ? JIT_MAPS_MORE : JIT_MAPS_ALL;
}

void jit_maps_reset(void)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps[i].pid) {
			begin(&maps[i]);
			maps[i].wanted = false;
			jit_map_release(&maps[i].map);
		}
}
