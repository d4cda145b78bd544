/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/jit_files.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "guest-agent/jit_map.h"
#include "guest-agent/timing.h"
#include "shared/span.h"

/* Wait between attempts to open a map; most processes with generated code never have one. */
#define FIRST_WAIT   100u /* ms */
#define LONGEST_WAIT 6400u

/* How often to check whether a process has exited. */
#define END_INTERVAL 1000u /* ms */

struct followed {
	struct jit_map map; /* not in use while `pid` is 0 */
	uint32_t pid;
	bool requested;   /* requested in this session; else only the program's start is kept */
	bool sent;        /* the beginning of the file was sent */
	bool incomplete;  /* the latest message had AGENT_JIT_MAP_INCOMPLETE */
	uint64_t begun;   /* ns of clock_raw(): the process was executing its current program */
	uint64_t since;   /* agent_jit_map.since of the next message */
	uint64_t waits;   /* ms: start of the wait for a file, or for another request */
	uint64_t next;    /* ms: next attempt to open the file, */
	uint64_t wait;    /* and the wait after it */
	uint64_t checked; /* ms: latest check whether the process runs */
};

/* State of one call of jit_maps_send(). */
struct pass {
	struct output *output;
	bool more; /* some lines were not sent */
};

static struct followed maps[JIT_MAPS_MAX];
static size_t first; /* map to start with, in turn */

/* Rate limit of all maps together. */
static struct {
	size_t left;   /* bytes of lines that may be sent */
	uint64_t time; /* ms, of the last update */
} pace;

/* Refills the limit, up to the bytes of one interval. */
static void refill_pace(void)
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

static bool is_less_important(const struct followed *one, const struct followed *other)
{
	return one->requested != other->requested ? !one->requested : one->waits < other->waits;
}

/* Replaces a map without a request first, then the one that has waited longest for a file. */
static struct followed *evict(void)
{
	struct followed *longest = NULL;

	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps[i].map.fd < 0 && !maps[i].sent && !maps[i].incomplete &&
		    (!longest || is_less_important(&maps[i], longest)))
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

/* Sends the map from its beginning. */
static void begin(struct followed *followed)
{
	jit_map_close(&followed->map);
	followed->requested = true;
	followed->sent = followed->incomplete = false;
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
		place = evict();
	if (place)
		follow(place, pid);
}

/* ms that the process has executed its program at least; 0: unknown. */
static uint32_t age_of_program(const struct followed *followed, uint64_t time)
{
	uint64_t age = (time - followed->begun) / NS_PER_MS;

	if (!jit_map_detects_exec(&followed->map))
		return 0;
	return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
}

/* The caller checked that OUTPUT has room. */
static void send_message(struct followed *followed, struct pass *pass, uint32_t flags,
			 struct span lines)
{
	struct agent_jit_map *message =
		output_message(pass->output, AGENT_JIT_MAP, sizeof(*message) + lines.size);

	message->since = followed->since;
	message->time = clock_raw();
	message->pid = followed->pid;
	message->flags = flags;
	message->size = (uint32_t)lines.size;
	message->program =
		flags & AGENT_JIT_MAP_BEGIN ? age_of_program(followed, message->time) : 0;
	if (lines.size)
		memcpy(message->lines, lines.data, lines.size);
	followed->incomplete = flags & AGENT_JIT_MAP_INCOMPLETE;
}

static void try_open(struct followed *followed)
{
	uint64_t now = clock_raw_ms();

	if (now < followed->next)
		return;
	followed->next = now + followed->wait;
	followed->wait = followed->wait < LONGEST_WAIT ? 2 * followed->wait : LONGEST_WAIT;
	followed->sent = false;
	jit_map_open(&followed->map, &followed->since);
}

/* Stops following: the map stays incomplete from here on. */
static void give_up(struct followed *followed, struct pass *pass)
{
	send_message(followed, pass, AGENT_JIT_MAP_INCOMPLETE, span_of(NULL, 0));
	stop_following(followed);
}

/* Sends the lines that were in the map at TIME and were not sent, within the rate limit. */
static void send_new(struct followed *followed, struct pass *pass, uint64_t time)
{
	static char lines[JIT_MAPS_PART];
	bool more = jit_map_left(&followed->map) > pace.left;
	ssize_t got = pace.left ? jit_map_read(&followed->map, lines, pace.left) : 0;

	if (got == -EFBIG && pace.left < sizeof(lines))
		got = 0; /* the limit was below a line's length: next time */
	if (got < 0 || (!followed->sent && jit_map_process(&followed->map) == JIT_MAP_EXEC)) {
		give_up(followed, pass);
		return;
	}
	if (got || !followed->sent || followed->incomplete != more)
		send_message(followed, pass,
			     (followed->sent ? 0 : AGENT_JIT_MAP_BEGIN) |
				     (more ? AGENT_JIT_MAP_INCOMPLETE : 0),
			     span_of(lines, (size_t)got));
	followed->sent = true;
	if (!more)
		followed->since = time;
	pace.left -= (size_t)got;
	pass->more |= more;
}

/* The file was replaced. Until the new one is sent, the map is incomplete. */
static void replace_file(struct followed *followed, struct pass *pass)
{
	jit_map_close(&followed->map);
	followed->wait = FIRST_WAIT;
	followed->next = 0;
	try_open(followed);
	if (!followed->incomplete)
		send_message(followed, pass, AGENT_JIT_MAP_INCOMPLETE, span_of(NULL, 0));
}

static enum jit_map_process check_process(struct followed *followed)
{
	uint64_t now = clock_raw_ms();

	if (now < followed->checked + END_INTERVAL)
		return JIT_MAP_RUNS;
	followed->checked = now;
	return jit_map_process(&followed->map);
}

/* Without a request only the program is tracked: drop it after an execve. */
static void check_program(struct followed *followed)
{
	if (check_process(followed) != JIT_MAP_RUNS)
		stop_following(followed);
}

static void send_map(struct followed *followed, struct pass *pass)
{
	enum jit_map_process process = check_process(followed); /* before the last read */
	uint64_t time = clock_raw();
	enum jit_map_change found;

	/* The host sends another request after an execve, unless that event was lost. */
	if (process == JIT_MAP_EXEC) {
		give_up(followed, pass);
		return;
	}
	if (followed->map.fd < 0)
		try_open(followed);
	found = followed->map.fd < 0 ? JIT_MAP_UNCHANGED : jit_map_poll(&followed->map);
	if (found == JIT_MAP_REPLACED)
		replace_file(followed, pass);
	else if (followed->map.fd >= 0 &&
		 (found == JIT_MAP_GREW || followed->incomplete || !followed->sent))
		send_new(followed, pass, time);
	else
		followed->since = time;
	/* Send the rest of an open file first. */
	if (process != JIT_MAP_ENDED || !followed->pid ||
	    (followed->incomplete && followed->map.fd >= 0))
		return;
	if (followed->sent && !followed->incomplete)
		send_message(followed, pass, AGENT_JIT_MAP_END, span_of(NULL, 0));
	stop_following(followed);
}

enum jit_maps_result jit_maps_send(struct output *output)
{
	struct pass pass = { .output = output };

	refill_pace();
	for (size_t i = 0; i < JIT_MAPS_MAX; i++) {
		struct followed *followed = &maps[(first + i) % JIT_MAPS_MAX];

		if (!followed->pid)
			continue;
		if (!followed->requested) {
			check_program(followed);
			continue;
		}
		/* Room for the lines and the end of the process. */
		if (output_room(output) < pace.left + 256)
			return JIT_MAPS_NO_ROOM;
		send_map(followed, &pass);
	}
	first = (first + 1) % JIT_MAPS_MAX;
	return pass.more ? JIT_MAPS_MORE : JIT_MAPS_ALL;
}

void jit_maps_reset(void)
{
	for (size_t i = 0; i < JIT_MAPS_MAX; i++)
		if (maps[i].pid) {
			begin(&maps[i]);
			maps[i].requested = false;
			jit_map_release(&maps[i].map);
		}
}
