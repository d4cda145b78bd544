// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/agent.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample.h"
#include "shared/sideband.h"
#include "vmm/guest/agent_clock.h"
#include "vmm/guest/agent_jit.h"
#include "vmm/guest/agent_placer.h"
#include "vmm/guest/agent_records.h"
#include "vmm/guest/agent_tsc.h"

#define MS 1000000ull /* ns */

/*
 * Each event is told before a round that is later, but for what its CPU was writing just then. An earlier one
 * is of a guest whose clock ran back.
 */
#define RAN_BACK (1000 * MS)
/* The agent may start at any time, and be started again. */
#define START_INTERVAL (500 * MS)
/*
 * The first ones quickly, so that the first events have a good time; then often enough against the drift
 * while the guest tells events, and for its JIT maps. One that has none of both has nothing to be placed, and
 * is asked only so often that samples need not wait for its rounds (collector.c).
 */
#define PING_INTERVAL      (100 * MS)
#define IDLE_PING_INTERVAL (250 * MS)
/* A guest whose answers take long has little time for itself: it is asked so many times as long as the latest
 * took behind that, and at most so long. */
#define ANSWERS_APART       3
#define PING_INTERVAL_MAX   (500 * MS)
#define FIRST_PINGS         8
#define FIRST_PING_INTERVAL (10 * MS)
/* Each one costs the guest: whatever it answers, and however often it begins anew, there are no more than
 * these and one for each PING_INTERVAL. */
#define PINGS_AT_ONCE (2 * FIRST_PINGS)
/* Bytes that came since the latest, for which there is one beyond that: they need their time. */
#define PING_BYTES (AGENT_HELD_MAX / 8)
/* Where there is no way to the guest, one is looked for so often. */
#define CONNECT_INTERVAL (1000 * MS)
/* A guest may stand still for a while; after this its agent is held for gone. */
#define SILENCE (5000 * MS)
/* Where the ring has no room for a loss, it is looked so often whether it has. */
#define LOSS_INTERVAL 50 /* ms */
/* So long a good exchange is waited for; then the best of those is taken that tell the time badly. */
#define VAGUE_AFTER (1000 * MS)
/* And without an exchange that tells the time: behind so much most of what waits could not be placed any
 * more. */
#define PATIENCE (3 * SILENCE)
/* Of the guest, whose records are told apart. */
#define CPUS_MAX 512
/* Bytes taken from the socket before anything else is looked at. */
#define READ_AT_ONCE (1u << 20)

struct agent {
	struct agent_options options;
	pthread_t thread;
	bool ended;         /* there is no thread any more; of the one that calls agent_end() */
	int stop_fd;        /* eventfd: stop */
	unsigned int pings; /* sent in this session */
	struct agent_stream stream;
	uint64_t session;           /* number of the present one */
	uint64_t next_send;         /* AGENT_START or AGENT_PING; or, without a socket, a try to have one */
	uint64_t heard;             /* the latest answer */
	uint64_t told;              /* the latest that told the time */
	uint64_t received;          /* the latest message that was no answer */
	uint64_t answer_took;       /* ns, the latest one of this session */
	uint64_t pings_paid;        /* ns: with each this moves on by PING_INTERVAL, of all sessions */
	size_t came;                /* bytes, since the latest */
	struct tsc_mark ping;       /* taken when it was sent */
	uint64_t session_lost;      /* as in agent_round, told so far */
	uint64_t round;             /* guest time of the latest, or of the session's begin */
	uint64_t written[CPUS_MAX]; /* for each of the guest's: guest time of its latest record; 0: none */
	bool emptied[CPUS_MAX];     /* that was the word that its ring, which was full, is empty */
	bool tsc_usable;
	bool tells;     /* an event came since the latest ping */
	bool ping_open; /* one is not answered yet */
	bool answered;  /* a ping of this session: it tells now, and may be asked */
	struct agent_placer placer;
	/* Of this session. The best since the latest that was taken, of those that tell the time badly; AFTER
	 * is 0: none */
	struct agent_clock_exchange vague;
	uint64_t vague_until;   /* ns: up to here that is counted */
	struct agent_jit jit;   /* of this session */
	pthread_mutex_t lock;   /* of the next four */
	bool kernel_thought_of; /* agent_want_kernel() was called in this session */
	struct agent_tables *tables;
	struct agent_mappings mappings; /* that were told; with options.mappings */
	struct agent_statistics statistics;
};

static uint64_t now(void)
{
	return tsc_mark_now().time;
}

/* A full socket takes nothing: the guest does not read, and will be asked again. */
static bool send_message(struct agent *agent, enum agent_message_type type, const void *payload, size_t size)
{
	struct {
		struct agent_message header;
		uint8_t payload[sizeof(struct agent_start)];
	} __attribute__((aligned(8))) message = {
		.header = { .size = (uint32_t)(sizeof(message.header) + size), .type = type },
	};

	if (size)
		memcpy(message.payload, payload, size);
	return send(agent->options.fd, &message, message.header.size, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)message.header.size;
}

/* What is cut off would be taken for the beginning of the next message. */
static bool send_whole(struct agent *agent, const struct agent_message *message)
{
	ssize_t sent = send(agent->options.fd, message, message->size, MSG_DONTWAIT | MSG_NOSIGNAL);

	return sent < 0 || sent == (ssize_t)message->size;
}

static void send_start(struct agent *agent, uint64_t time)
{
	struct agent_start start = { .magic = AGENT_MAGIC,
				     .session = agent->session,
				     .version = AGENT_PROTOCOL_VERSION };

	send_message(agent, AGENT_START, &start, sizeof(start));
	agent->next_send = time + START_INTERVAL;
}

/* Not before that, for the sake of the guest. */
static uint64_t ping_allowed(const struct agent *agent)
{
	uint64_t ahead = (uint64_t)PINGS_AT_ONCE * PING_INTERVAL;

	return agent->pings_paid > ahead ? agent->pings_paid - ahead : 0;
}

static uint64_t wanted_interval(const struct agent *agent)
{
	if (agent->pings < FIRST_PINGS)
		return FIRST_PING_INTERVAL;
	return agent->tells || agent_jit_follows(&agent->jit) ? PING_INTERVAL : IDLE_PING_INTERVAL;
}

static uint64_t ping_interval(const struct agent *agent)
{
	uint64_t wanted = wanted_interval(agent), apart = ANSWERS_APART * agent->answer_took;

	if (apart > PING_INTERVAL_MAX)
		apart = PING_INTERVAL_MAX;
	return apart > wanted ? apart : wanted;
}

static void send_ping(struct agent *agent, uint64_t time)
{
	struct agent_ping ping;

	agent->next_send = time + ping_interval(agent);
	if (agent->ping_open)
		return; /* what has no answer yet would have a bad one */
	agent->pings_paid = (agent->pings_paid > time ? agent->pings_paid : time) + PING_INTERVAL;
	agent->came = 0;
	agent->tells = false;
	agent->ping = tsc_mark_now();
	ping.host_time = agent->ping.time;
	agent->ping_open = send_message(agent, AGENT_PING, &ping, sizeof(ping));
	agent->pings++;
}

static void refuse(struct agent *agent)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.refused++;
	pthread_mutex_unlock(&agent->lock);
}

static void count_lost(struct agent *agent, uint64_t count)
{
	agent->session_lost += count;
	pthread_mutex_lock(&agent->lock);
	agent->statistics.lost += count;
	pthread_mutex_unlock(&agent->lock);
}

/* The guest can not tell of COUNT events, or of some that it does not know of, between SINCE and UNTIL. */
static void tell_lost(struct agent *agent, uint64_t count, uint64_t since, uint64_t until)
{
	struct sideband_lost lost = { .head = { .size = sizeof(lost), .type = SIDEBAND_LOST, .time = since },
				      .count = count };

	agent_placer_write(&agent->placer, &lost.head, until > since ? until : since);
	count_lost(agent, count);
}

/* Its number differs from all before, so that their messages are not taken for its own. */
static void begin_session(struct agent *agent, uint64_t time)
{
	if (agent->statistics.open)
		count_lost(agent, agent_placer_end(&agent->placer, agent->received));
	agent_placer_begin(&agent->placer);
	memset(agent->written, 0, sizeof(agent->written));
	memset(agent->emptied, 0, sizeof(agent->emptied));
	agent->session = time;
	agent->pings = 0;
	agent->ping_open = agent->answered = false;
	agent->answer_took = 0;
	agent->session_lost = 0;
	agent->next_send = time;
	agent->vague = (struct agent_clock_exchange){ 0 };
	agent_jit_forget(&agent->jit);
	agent_stream_reset(&agent->stream);
	pthread_mutex_lock(&agent->lock);
	agent->statistics.open = false;
	agent->kernel_thought_of = false;
	agent_tables_session_ended(agent->tables);
	pthread_mutex_unlock(&agent->lock);
}

/* Nothing before the round's time will come any more. */
static void tell_round(struct agent *agent, uint64_t guest_time)
{
	struct sideband record = { .size = sizeof(record), .type = SIDEBAND_ROUND };

	agent_placer_write(&agent->placer, &record, guest_time);
}

/* Lines may be missing, until maps are told from their beginning. */
static void tell_jit_maps_unknown(struct agent *agent, uint64_t guest_time)
{
	struct sideband_jit_map record = {
		.head = { .size = sizeof(record), .type = SIDEBAND_JIT_MAP, .flags = SIDEBAND_JIT_BEHIND },
	};

	agent_placer_write(&agent->placer, &record.head, guest_time);
}

/* It is shown to the user: no terminal is to obey a guest. */
static void copy_release(char *to, const char *from)
{
	memcpy(to, from, AGENT_RELEASE_MAX);
	to[AGENT_RELEASE_MAX - 1] = '\0';
	for (; *to; to++)
		if (*to < ' ' || *to > '~')
			*to = '?';
}

static void take_hello(struct agent *agent, const struct agent_hello *hello, uint64_t time)
{
	struct agent_statistics *statistics = &agent->statistics;

	if (statistics->open || hello->magic != AGENT_MAGIC || hello->session != agent->session)
		return; /* of an earlier session */
	agent->heard = agent->told = agent->next_send = time;
	agent->round = hello->guest_time;
	pthread_mutex_lock(&agent->lock);
	statistics->sessions++;
	statistics->open = hello->version == AGENT_PROTOCOL_VERSION;
	statistics->version = hello->version;
	statistics->features = statistics->open ? hello->features : 0;
	statistics->error = statistics->open ? hello->error : -EPROTONOSUPPORT;
	statistics->snapshot_done = false;
	copy_release(statistics->release, hello->release);
	pthread_mutex_unlock(&agent->lock);
	if (!statistics->open)
		return; /* its time will never be known */
	tell_jit_maps_unknown(agent, hello->guest_time);
	/* Who puts things in order is to wait for it from here on. */
	tell_round(agent, hello->guest_time);
}

/*
 * The guest read its clock between two readings of its TSC. What comes of
 * that must lie where the messages say, else the offset is not what we think,
 * and it is not asked again.
 */
static void use_tsc(struct agent *agent, const struct agent_pong *pong, struct agent_clock_exchange *exchange)
{
	uint64_t offset = agent->options.tsc_offset, before, after, ignored;
	struct tsc_mark mark = tsc_mark_now();

	if (!agent->tsc_usable)
		return;
	agent->tsc_usable = tsc_time(&agent->ping, &mark, pong->tsc_before - offset, &before, &ignored) &&
			    tsc_time(&agent->ping, &mark, pong->tsc_after - offset, &ignored, &after) &&
			    before <= after && before <= exchange->after && after >= exchange->before;
	if (!agent->tsc_usable)
		return;
	exchange->before = before > exchange->before ? before : exchange->before;
	exchange->after = after < exchange->after ? after : exchange->after;
}

/*
 * The guest stood still or was moved: when what it told just before happened is
 * not known any more. Everything is asked anew.
 */
static void begin_after_jump(struct agent *agent, uint64_t time)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.clock_jumps++;
	pthread_mutex_unlock(&agent->lock);
	begin_session(agent, time);
}

static void note_clock(struct agent *agent, const struct agent_clock_exchange *exchange)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.clock_error = (exchange->after - exchange->before) / 2 + 1;
	agent->statistics.tsc_used = agent->tsc_usable;
	pthread_mutex_unlock(&agent->lock);
}

/*
 * The agent had the ping for some time before it read its clock: by a clock that may be fast. What can not be
 * is not believed. Not seen is a clock that was set forth in that very time: what happened between that and
 * the reading is then placed too late, by as much at most.
 */
static void use_receipt(struct agent *agent, const struct agent_message *message,
			struct agent_clock_exchange *exchange)
{
	const struct agent_pong *pong = agent_payload(message, sizeof(*pong));
	uint64_t time = pong ? pong->guest_time - pong->received : 0, before;

	if (time > exchange->after - agent->ping.time)
		return;
	before = agent->ping.time + time - time / (1000000 / AGENT_CLOCK_DRIFT_PPM);
	if (before > exchange->before && before <= exchange->after)
		exchange->before = before;
}

static void use_exchange(struct agent *agent, const struct agent_clock_exchange *exchange, uint64_t time)
{
	agent->heard = agent->told = time;
	note_clock(agent, exchange);
	agent->vague = (struct agent_clock_exchange){ 0 };
	agent_placer_place(&agent->placer);
}

static uint64_t width(const struct agent_clock_exchange *exchange)
{
	return exchange->after - exchange->before;
}

/* The time since an answer told the time, or was counted here. */
static void count_vague(struct agent *agent, uint64_t time)
{
	uint64_t since = agent->vague_until > agent->told ? agent->vague_until : agent->told;

	agent->vague_until = time;
	pthread_mutex_lock(&agent->lock);
	agent->statistics.vague += time - since;
	pthread_mutex_unlock(&agent->lock);
}

/* What waits needs a better one, and is placed if it comes; if none does, by the best of these. */
static void take_vague(struct agent *agent, const struct agent_clock_exchange *exchange, uint64_t time)
{
	struct agent_clock_exchange *best = &agent->vague, taken;

	if (time < agent->told + PATIENCE)
		agent->heard = time;
	if (agent_clock_serves(&agent->placer.clock, exchange) &&
	    (!best->after || width(exchange) < width(best)))
		*best = *exchange;
	if (time < agent->told + VAGUE_AFTER)
		return;
	count_vague(agent, time);
	if (!best->after)
		return;
	taken = *best;
	agent_clock_take_vague(&agent->placer.clock, &taken);
	use_exchange(agent, &taken, time);
}

static void take_pong(struct agent *agent, const struct agent_message *message, uint64_t time)
{
	const struct agent_pong *pong = agent_payload(message, AGENT_PONG_MIN);
	struct agent_clock_exchange exchange = { agent->ping.time, time, pong->guest_time };

	if (!agent->ping_open || pong->host_time != agent->ping.time)
		return refuse(agent);
	agent->ping_open = false;
	agent->answered = true;
	agent->answer_took = time - agent->ping.time;
	if (agent->next_send < agent->ping.time + ping_interval(agent))
		agent->next_send = agent->ping.time + ping_interval(agent);
	use_tsc(agent, pong, &exchange);
	use_receipt(agent, message, &exchange);
	switch (agent_clock_take(&agent->placer.clock, &exchange)) {
	case AGENT_CLOCK_VAGUE:
		take_vague(agent, &exchange, time);
		return;
	case AGENT_CLOCK_JUMPED:
		begin_after_jump(agent, time);
		return;
	case AGENT_CLOCK_TAKEN:
		use_exchange(agent, &exchange, time);
		return;
	}
}

/*
 * A ring is full in the moment behind its latest record. Its kernel tells of that with the next record that
 * finds room: however late that is, what is told right behind the word that the ring is empty was lost
 * before.
 */
static void take_lost(struct agent *agent, uint32_t cpu, const struct agent_record *record)
{
	const struct sideband_lost *lost = (const void *)&record->sideband;
	uint64_t since = cpu < CPUS_MAX && agent->written[cpu] ? agent->written[cpu] : agent->round;
	bool answered = cpu < CPUS_MAX && agent->emptied[cpu] && lost->count;

	tell_lost(agent, lost->count, since, answered ? since : record->guest_time);
}

static void note_written(struct agent *agent, uint32_t cpu, const struct agent_record *record)
{
	const struct sideband_lost *lost = (const void *)&record->sideband;

	if (cpu >= CPUS_MAX)
		return;
	agent->written[cpu] = record->guest_time;
	agent->emptied[cpu] = record->sideband.head.size && lost->head.type == SIDEBAND_LOST && !lost->count;
}

static void note_mapping(struct agent *agent, const struct sideband *mmap)
{
	if (!agent->options.mappings)
		return;
	pthread_mutex_lock(&agent->lock);
	agent_mappings_see(&agent->mappings, mmap);
	pthread_mutex_unlock(&agent->lock);
}

static void take_record(struct agent *agent, uint32_t cpu, struct agent_record *record)
{
	struct sideband *sideband = &record->sideband.head;

	if (sideband->type == SIDEBAND_LOST)
		take_lost(agent, cpu, record);
	else
		agent_placer_write(&agent->placer, sideband, record->guest_time);
	/* A snapshot's may be as old as what it is told for. */
	agent->placer.broken |= cpu != AGENT_CPU_SNAPSHOT && record->guest_time < agent->round &&
				agent->round - record->guest_time > RAN_BACK;
	agent->tells = true;
	agent_jit_see(&agent->jit, sideband, record->guest_time);
	if (sideband->type == SIDEBAND_MMAP)
		note_mapping(agent, sideband);
}

static void take_events(struct agent *agent, const struct agent_events *events, size_t bytes)
{
	struct span records = span_of(events->records, bytes);
	struct agent_record record;
	uint64_t taken = 0;

	while (records.size) {
		int size = agent_record_decode(records, &record);

		if (size < 0) {
			refuse(agent);
			break;
		}
		if (record.sideband.head.size) {
			take_record(agent, events->cpu, &record);
			taken++;
		}
		note_written(agent, events->cpu, &record);
		records = span_of(records.data + size, records.size - (size_t)size);
	}
	pthread_mutex_lock(&agent->lock);
	agent->statistics.records += taken;
	pthread_mutex_unlock(&agent->lock);
}

static void take_round(struct agent *agent, const struct agent_round *round)
{
	/* What no record of its kernel said: processors that came late. */
	if (round->lost > agent->session_lost)
		tell_lost(agent, round->lost - agent->session_lost, agent->round, round->guest_time);
	agent->round = round->guest_time;
	tell_round(agent, round->guest_time);
	pthread_mutex_lock(&agent->lock);
	agent->statistics.unsteady = round->unsteady;
	agent->statistics.cut = round->cut;
	agent->statistics.snapshot_done = round->flags & AGENT_ROUND_SNAPSHOT_DONE;
	pthread_mutex_unlock(&agent->lock);
}

static void take_table(struct agent *agent, const struct agent_message *message, uint64_t time)
{
	bool taken;

	pthread_mutex_lock(&agent->lock);
	taken = agent_tables_take(agent->tables, message, time);
	pthread_mutex_unlock(&agent->lock);
	if (!taken)
		refuse(agent);
}

static void write_jit(void *context, struct sideband *record)
{
	agent_placer_write(context, record, record->time);
}

static void take_jit_map(struct agent *agent, const struct agent_message *message)
{
	if (agent_jit_take(message, write_jit, &agent->placer))
		return;
	tell_jit_maps_unknown(agent, agent->round);
	refuse(agent);
}

static void take_session_message(struct agent *agent, const struct agent_message *message, uint64_t time)
{
	const struct agent_pong *pong = agent_payload(message, AGENT_PONG_MIN);
	const struct agent_events *events = agent_payload(message, sizeof(*events));
	const struct agent_round *round = agent_payload(message, sizeof(*round));

	if (message->type == AGENT_PONG && pong)
		take_pong(agent, message, time);
	else if (message->type == AGENT_EVENTS && events)
		take_events(agent, events, agent_payload_size(message) - sizeof(*events));
	else if (message->type == AGENT_ROUND && round)
		take_round(agent, round);
	else if (message->type == AGENT_TABLE)
		take_table(agent, message, time);
	else if (message->type == AGENT_JIT_MAP)
		take_jit_map(agent, message);
}

static void take_message(struct agent *agent, const struct agent_message *message)
{
	const struct agent_hello *hello = agent_payload(message, sizeof(*hello));
	uint64_t time = now();

	if (message->type != AGENT_PONG)
		agent->received = time;
	if (message->type == AGENT_HELLO && hello)
		take_hello(agent, hello, time);
	else if (agent->statistics.open)
		take_session_message(agent, message, time);
}

static void take_messages(struct agent *agent)
{
	const struct agent_message *message;
	int found;

	while ((found = agent_stream_next(&agent->stream, AGENT_HELLO, &message)) > 0)
		take_message(agent, message);
	if (agent->placer.broken)
		begin_session(agent, now());
	if (found < 0) {
		refuse(agent);
		begin_session(agent, now());
	}
}

/* False where the socket's other end is gone. */
static bool take_input(struct agent *agent)
{
	size_t taken = 0, room;
	ssize_t size = 1;

	while (size > 0 && taken < READ_AT_ONCE) {
		uint8_t *to = agent_stream_room(&agent->stream, &room);

		size = recv(agent->options.fd, to, room, MSG_DONTWAIT);
		if (size <= 0)
			break;
		taken += (size_t)size;
		agent->came += (size_t)size;
		agent_stream_received(&agent->stream, (size_t)size);
		take_messages(agent);
	}
	ring_flush(agent->options.ring);
	return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

/* A guest that does not read is asked when it does: the question waits its time as if it had been sent. */
static void ask_for_table(struct agent *agent, uint64_t time)
{
	const struct agent_message *question;
	bool whole = true;

	if (!agent->answered || !(agent->statistics.features & (AGENT_FEATURE_TABLES | AGENT_FEATURE_KERNEL)))
		return;
	pthread_mutex_lock(&agent->lock);
	question = agent_tables_next(agent->tables, time);
	if (question)
		whole = send_whole(agent, question);
	pthread_mutex_unlock(&agent->lock);
	if (!whole)
		begin_session(agent, time);
}

static void note_connection(struct agent *agent, int error)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.connected = !error;
	agent->statistics.unconnected = error;
	pthread_mutex_unlock(&agent->lock);
}

/* Without a socket. */
static void connect_if_due(struct agent *agent, uint64_t time)
{
	int fd;

	if (time < agent->next_send)
		return;
	fd = agent->options.connect(agent->options.context);
	agent->next_send = time + CONNECT_INTERVAL;
	if (fd >= 0) {
		agent->options.fd = fd;
		begin_session(agent, time);
	}
	note_connection(agent, fd < 0 ? fd : 0);
}

/* There is nobody left to talk with, unless there is another way to him. */
static void disconnect(struct agent *agent)
{
	uint64_t time = now();

	close(agent->options.fd);
	agent->options.fd = -1;
	begin_session(agent, time);
	agent->next_send = time + CONNECT_INTERVAL;
	note_connection(agent, -ENOTCONN);
}

static void ask_for_jit_maps(struct agent *agent, uint64_t time)
{
	/* With the path "". */
	uint64_t bytes[(sizeof(struct agent_message) + sizeof(struct agent_ask)) / 8 + 1] = { 0 };
	struct agent_message *question = (struct agent_message *)bytes;
	struct agent_ask *ask = (struct agent_ask *)question->payload;

	if (!agent->answered || !(agent->statistics.features & AGENT_FEATURE_JIT_MAPS))
		return;
	*question = (struct agent_message){ .size = sizeof(bytes), .type = AGENT_ASK };
	ask->kind = AGENT_TABLE_JIT_MAP;
	while ((ask->pid = agent_jit_next(&agent->jit)))
		if (!send_whole(agent, question)) {
			begin_session(agent, time);
			return;
		}
}

/* A snapshot, say: it is to have its time before there is no room for more. */
static bool holds_much(const struct agent *agent)
{
	return !agent->ping_open && agent->came >= PING_BYTES && agent_placer_holds_much(&agent->placer);
}

/* What was told behind silence has its time as soon as what is told again and again. */
static void hasten_ping(struct agent *agent)
{
	uint64_t due = agent->ping.time + PING_INTERVAL;

	if (agent->tells && agent->pings >= FIRST_PINGS && ping_interval(agent) == PING_INTERVAL &&
	    due < agent->next_send)
		agent->next_send = due;
}

static void send_what_is_due(struct agent *agent)
{
	uint64_t time = now();

	agent_placer_write_loss(&agent->placer);
	if (agent->options.fd < 0) {
		if (agent->options.connect)
			connect_if_due(agent, time);
		return;
	}
	if (agent->statistics.open && time > agent->heard + SILENCE)
		begin_session(agent, time);
	ask_for_table(agent, time);
	ask_for_jit_maps(agent, time);
	hasten_ping(agent);
	if (time < agent->next_send && !holds_much(agent))
		return;
	if (!agent->statistics.open)
		send_start(agent, time);
	else if (time >= ping_allowed(agent) || holds_much(agent))
		send_ping(agent, time);
	else
		agent->next_send = ping_allowed(agent);
}

/* ms; -1: nothing will be sent. */
static int time_to_send(const struct agent *agent)
{
	uint64_t time = now();

	if (agent->options.fd < 0 && !agent->options.connect)
		return -1;
	return agent->next_send > time ? (int)((agent->next_send - time) / MS) + 1 : 0;
}

/* ms; -1: nothing will be due. */
static int time_to_wait(const struct agent *agent)
{
	int wait = time_to_send(agent);

	return agent->placer.loss.head.size && (wait < 0 || wait > LOSS_INTERVAL) ? LOSS_INTERVAL : wait;
}

static void *serve(void *argument)
{
	struct agent *agent = argument;
	struct pollfd fds[] = {
		{ .events = POLLIN },
		{ .fd = agent->stop_fd, .events = POLLIN },
	};

	pthread_setname_np(pthread_self(), "agent");
	begin_session(agent, now());
	while (!(fds[1].revents & POLLIN)) {
		send_what_is_due(agent);
		fds[0].fd = agent->options.fd; /* a negative one is not polled */
		if (poll(fds, 2, time_to_wait(agent)) < 0)
			continue;
		if (fds[0].revents && !take_input(agent))
			disconnect(agent);
	}
	if (agent->options.fd >= 0) {
		take_input(agent);
		send_message(agent, AGENT_STOP, NULL, 0);
	}
	count_lost(agent, agent_placer_stop(&agent->placer, agent->received));
	return NULL;
}

static void drop_tables(void *context, size_t size)
{
	struct agent *agent = context;

	pthread_mutex_lock(&agent->lock);
	agent_tables_drop(agent->tables, size);
	pthread_mutex_unlock(&agent->lock);
}

static void destroy(struct agent *agent)
{
	guest_account_set_drop(agent->options.account, NULL, NULL);
	guest_account_give(agent->options.account, AGENT_HELD_MAX);
	if (agent->stop_fd >= 0)
		close(agent->stop_fd);
	if (agent->options.fd >= 0)
		close(agent->options.fd);
	pthread_mutex_destroy(&agent->lock);
	agent_tables_free(agent->tables);
	agent_mappings_free(&agent->mappings);
	agent_placer_free(&agent->placer);
	free(agent);
}

/* Signals are the main thread's. */
static int start_thread(struct agent *agent)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(&agent->thread, NULL, serve, agent);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int agent_start(struct agent **result, const struct agent_options *options)
{
	struct agent *agent = calloc(1, sizeof(*agent));
	/* At once: without room for what waits nothing could be told at all. */
	bool held = guest_account_take(options->account, AGENT_HELD_MAX);
	int error;

	if (agent && held)
		agent->tables = agent_tables_new(options->account);
	if (!agent || !agent->tables) {
		free(agent);
		guest_account_give(options->account, held ? AGENT_HELD_MAX : 0);
		if (options->fd >= 0)
			close(options->fd);
		return error_set(-ENOMEM, "no memory for the guest agent's thread");
	}
	agent->options = *options;
	agent->placer.ring = options->ring;
	agent->mappings.account = options->account;
	agent->statistics.connected = options->fd >= 0;
	agent->tsc_usable = options->tsc_known && tsc_is_clock();
	pthread_mutex_init(&agent->lock, NULL);
	agent->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = agent->stop_fd < 0 ? -errno : start_thread(agent);
	if (error) {
		destroy(agent);
		return error_set(error, "can not start the guest agent's thread: %s", strerror(-error));
	}
	guest_account_set_drop(options->account, drop_tables, agent);
	*result = agent;
	return 0;
}

void agent_statistics(struct agent *agent, struct agent_statistics *statistics)
{
	pthread_mutex_lock(&agent->lock);
	*statistics = agent->statistics;
	agent_tables_statistics(agent->tables, &statistics->tables);
	pthread_mutex_unlock(&agent->lock);
}

int agent_want_symbols(struct agent *agent, const struct agent_image *image)
{
	int error;

	pthread_mutex_lock(&agent->lock);
	error = agent_tables_want(agent->tables, image);
	pthread_mutex_unlock(&agent->lock);
	return error;
}

struct agent_mappings agent_take_mappings(struct agent *agent)
{
	struct agent_mappings mappings;

	pthread_mutex_lock(&agent->lock);
	mappings = agent->mappings;
	agent->mappings = (struct agent_mappings){ .account = mappings.account };
	pthread_mutex_unlock(&agent->lock);
	return mappings;
}

struct agent_image_table *agent_take_symbols(struct agent *agent)
{
	struct agent_image_table *table;

	pthread_mutex_lock(&agent->lock);
	table = agent_tables_pop(agent->tables);
	pthread_mutex_unlock(&agent->lock);
	return table;
}

int agent_want_kernel(struct agent *agent, uint64_t modules_hash)
{
	int error = -EOPNOTSUPP;

	pthread_mutex_lock(&agent->lock);
	if (agent->statistics.open && agent->statistics.features & AGENT_FEATURE_KERNEL) {
		error = agent->kernel_thought_of ? agent_tables_want_kernel(agent->tables, modules_hash)
						 : -EAGAIN;
		agent->kernel_thought_of = true;
	}
	pthread_mutex_unlock(&agent->lock);
	return error;
}

struct agent_image_table *agent_take_kernel(struct agent *agent)
{
	struct agent_image_table *table;

	pthread_mutex_lock(&agent->lock);
	table = agent_tables_pop_kernel(agent->tables);
	pthread_mutex_unlock(&agent->lock);
	return table;
}

void agent_end(struct agent *agent, struct agent_statistics *statistics)
{
	const uint64_t one = 1;

	if (!agent->ended && write(agent->stop_fd, &one, sizeof(one)) < 0)
		abort(); /* an eventfd of our own that was 0 */
	if (!agent->ended)
		pthread_join(agent->thread, NULL);
	agent->ended = true;
	if (statistics)
		agent_statistics(agent, statistics);
}

void agent_stop(struct agent *agent, struct agent_statistics *statistics)
{
	if (!agent)
		return;
	agent_end(agent, statistics);
	destroy(agent);
}
