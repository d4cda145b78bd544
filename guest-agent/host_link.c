// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/host_link.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "guest-agent/jit_files.h"
#include "guest-agent/kernel_events.h"
#include "guest-agent/proc_snapshot.h"
#include "guest-agent/process_cgroup.h"
#include "guest-agent/reference_tasks.h"
#include "guest-agent/send_queue.h"
#include "guest-agent/table_sender.h"
#include "guest-agent/timing.h"

/*
 * Events wait so long for others, so that a busy guest wakes the agent a hundred times a second at
 * most; those of the process connector, which come with a wake-up each, forty times.
 */
#define GATHER_MS           10
#define GATHER_CONNECTOR_MS 25
/* A port whose host is away says so at once and always: that is how often it is asked. */
#define AWAY_MS 250
/*
 * Processes of a snapshot are looked at so long, or until so much is to be sent, before anything
 * else is: each write leaves the guest, which costs more than a process does.
 */
#define SNAPSHOT_TURN_MS    10
#define SNAPSHOT_TURN_BYTES 16384
/* Behind the end of a snapshot: so long what was lost meanwhile, and later, waits for the next one.
 */
#define SNAPSHOT_MS 1000
/*
 * Where the kernel does not tell of mappings, all are looked up again so long behind the last time;
 * or longer, so that it takes a 1500th of a CPU.
 */
#define LOOK_AROUND_MS   10000
#define LOOK_AROUND_REST 1500
/*
 * Processes are looked at so many at once, and so soon again; and no more of them than take a 600th
 * of a CPU over some seconds, or ten a second where each takes long: of a guest that begins
 * processes faster the others are looked at later.
 */
#define LOOKS_AT_ONCE     16
#define LOOK_AGAIN_MS     50
#define LOOKS_REST        600
#define LOOKS_REST_MAX_MS 100
#define LOOKS_AHEAD_MS    4000
/*
 * A record gets its time a moment before it can be seen in its ring: so much
 * before a drain began is what is sure to have been in it.
 */
#define IN_FLIGHT_NS 1000000u

struct session {
	struct agent_stream input;
	struct output output;
	struct events events;
	struct snapshot snapshot;
	bool open;    /* between AGENT_START and AGENT_STOP */
	bool telling; /* the host has asked for the time: it can place what it is told now */
	uint64_t id;  /* that the host gave it */
	bool ended;   /* there was one, and it is over */
	bool told;    /* the first snapshot is */
	uint64_t next_snapshot; /* ms: not before, whatever is lost */
	uint64_t next_step;     /* ms: of a snapshot that is not the first */
	uint64_t snapshot_cost; /* ns of a CPU, of the latest */
	uint64_t looks_paid;    /* ms: with what looks cost this moves on */
	bool round_due;      /* the host is to know up to when all is told, with the next drain */
	bool asked;          /* and what time it is */
	uint64_t asked_by;   /* agent_ping.host_time of that */
	uint64_t asked_at;   /* ns, clock_raw() */
	bool drain_planned;  /* at drain_time */
	uint64_t drain_time; /* ms */
};

/* Too large for a stack; there is one session at a time. */
static struct session session;

static uint64_t read_tsc(void)
{
	uint64_t tsc;

	/* LFENCE: not before what is before it is done, nor after what is behind it (SDM vol. 2,
	 * RDTSC). */
	__builtin_ia32_lfence();
	tsc = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return tsc;
}

static void plan_drain(uint64_t delay)
{
	uint64_t time = clock_raw_ms() + delay;

	if (session.drain_planned && session.drain_time <= time)
		return;
	session.drain_planned = true;
	session.drain_time = time;
}

static void close_session(void)
{
	if (!session.open)
		return;
	session.open = session.telling = false;
	session.ended = true;
	session.drain_planned = session.round_due = session.asked = false;
	table_cancel();
	jit_maps_reset();
	reference_tasks_cancel();
	cgroup_reset();
	snapshot_end(&session.snapshot);
	events_close(&session.events);
}

/* What an earlier session had still to say, the host of this one did not ask for. */
static void open_session(const struct agent_start *start)
{
	struct agent_hello *hello;
	struct utsname name;
	int error;

	if (session.open && session.id == start->session)
		return; /* said again by a host that had to wait */
	close_session();
	output_drop(&session.output);
	error = start->version == AGENT_PROTOCOL_VERSION ? events_open(&session.events)
							 : -EPROTONOSUPPORT;
	session.open = true;
	session.id = start->session;
	session.telling = false;
	hello = output_message(&session.output, AGENT_HELLO, sizeof(*hello));
	*hello = (struct agent_hello){
		.magic = AGENT_MAGIC,
		.session = start->session,
		.version = AGENT_PROTOCOL_VERSION,
		.features = session.events.cpus ? session.events.features | AGENT_FEATURE_TABLES |
							  AGENT_FEATURE_JIT_MAPS |
							  AGENT_FEATURE_KERNEL | AGENT_FEATURE_TASKS
						: 0,
		.guest_time = clock_raw(),
		.cpus = session.events.cpus,
		.error = error,
	};
	if (!uname(&name))
		strncpy(hello->release, name.release, sizeof(hello->release) - 1);
}

/* Without events a snapshot would soon be wrong, and nothing would say so. */
static void begin_telling(void)
{
	if (session.telling)
		return;
	session.telling = true;
	session.told = !session.events.cpus;
	if (session.events.cpus)
		snapshot_begin(&session.snapshot, events_by_connector(&session.events));
}

static uint64_t look_around_interval(void)
{
	uint64_t rest = LOOK_AROUND_REST * session.snapshot_cost / NS_PER_MS;

	return rest > LOOK_AROUND_MS ? rest : LOOK_AROUND_MS;
}

/* What the kernel could not tell, /proc does. */
static void fill_gap(void)
{
	bool around =
		events_by_connector(&session.events) &&
		clock_raw_ms() >= session.next_snapshot - SNAPSHOT_MS + look_around_interval();

	if (session.snapshot.directory || clock_raw_ms() < session.next_snapshot ||
	    !(session.events.gap || around))
		return;
	session.events.gap = false;
	session.snapshot_cost = 0;
	snapshot_begin(&session.snapshot, true);
}

/* Nothing is left in the rings: says up to when. Without room for that nothing is lost but the
 * word. */
static void send_round(uint64_t time)
{
	struct agent_round *round = output_message(&session.output, AGENT_ROUND, sizeof(*round));

	if (!round)
		return;
	round->guest_time = time - IN_FLIGHT_NS;
	round->lost = session.events.lost;
	round->unstable = session.snapshot.unstable + session.events.connector.missed;
	round->cut = session.snapshot.cut;
	round->flags = session.told ? AGENT_ROUND_SNAPSHOT_DONE : 0;
}

/* ms, until looks may be taken again. */
static uint64_t time_to_look(void)
{
	uint64_t now = clock_raw_ms();

	return session.looks_paid > now + LOOKS_AHEAD_MS ? session.looks_paid - now - LOOKS_AHEAD_MS
							 : 0;
}

static bool look_at(pid_t pid)
{
	uint64_t begun = clock_cpu(), now = clock_raw_ms(), rest;
	bool told = snapshot_process(&session.snapshot, pid, &session.events, &session.output);

	rest = LOOKS_REST * (clock_cpu() - begun) / NS_PER_MS;
	if (session.looks_paid < now)
		session.looks_paid = now;
	session.looks_paid += rest < LOOKS_REST_MAX_MS ? rest : LOOKS_REST_MAX_MS;
	return told;
}

/* At processes of which the kernel tells no more than that they began. */
static void look_at_new(void)
{
	struct connector *connector = &session.events.connector;
	pid_t pid;

	if (!events_by_connector(&session.events))
		return;
	for (int i = 0; i < LOOKS_AT_ONCE && !time_to_look() &&
			(pid = connector_due(connector, clock_raw_ms()));
	     i++)
		if (!look_at(pid)) {
			session.events.gap = true; /* the next snapshot tells of it */
			break;
		}
	if (connector->due_count)
		plan_drain(time_to_look() > LOOK_AGAIN_MS ? time_to_look() : LOOK_AGAIN_MS);
}

/*
 * Behind all that was fetched, which so has an exchange of clocks behind it, and goes with the same
 * write. While the host has more to read than there is room for, the answer waits: what it waits
 * for is in it, too.
 */
static void answer_ping(void)
{
	struct agent_pong *pong;

	if (!session.asked)
		return;
	pong = output_message(&session.output, AGENT_PONG, sizeof(*pong));
	if (!pong) {
		plan_drain(GATHER_MS);
		return;
	}
	session.asked = false;
	pong->host_time = session.asked_by;
	pong->received = session.asked_at;
	pong->tsc_before = read_tsc();
	pong->guest_time = clock_raw();
	pong->tsc_after = read_tsc();
}

static void drain(void)
{
	enum jit_maps_result maps = JIT_MAPS_ALL;
	uint64_t time = clock_raw();
	bool drained;

	session.drain_planned = false;
	drained = events_drain(&session.events, &session.output);
	cgroup_send(&session.output);
	/* A round is of the JIT maps, too: they are told of before it. */
	if (drained && session.round_due)
		maps = jit_maps_send(&session.output);
	answer_ping();
	if (!reference_tasks_send(&session.output))
		plan_drain(GATHER_MS);
	if (!drained || maps == JIT_MAPS_NO_ROOM) {
		plan_drain(GATHER_MS);
	} else if (session.round_due) {
		send_round(time);
		session.round_due = maps == JIT_MAPS_MORE;
		if (session.round_due)
			plan_drain(JIT_MAPS_INTERVAL_MS);
	}
	output_flush(&session.output); /* an error is seen again with the next one */
	look_at_new();
	fill_gap();
}

static void take_ping(const struct agent_ping *ping)
{
	session.asked = session.round_due = true;
	session.asked_by = ping->host_time;
	session.asked_at = clock_raw();
	begin_telling();
	events_open_new_cpus(&session.events);
	drain();
}

static void ask_for_tasks(void)
{
	reference_tasks_request();
	plan_drain(0);
}

static void take_ask(const struct agent_message *message)
{
	const struct agent_request *ask = agent_payload(message, sizeof(*ask));

	if (ask && ask->kind == AGENT_TABLE_JIT_MAP)
		jit_maps_request(ask->pid);
	else if (ask && ask->kind == AGENT_TABLE_TASKS)
		ask_for_tasks();
	else
		table_request(message, &session.output);
}

static void take_message(const struct agent_message *message)
{
	const struct agent_start *start = agent_payload(message, sizeof(*start));
	const struct agent_ping *ping = agent_payload(message, sizeof(*ping));

	if (message->type == AGENT_START && start && start->magic == AGENT_MAGIC)
		open_session(start);
	else if (message->type == AGENT_PING && ping && session.open)
		take_ping(ping);
	else if (message->type == AGENT_REQUEST && session.telling)
		take_ask(message);
	else if (message->type == AGENT_STOP)
		close_session();
}

static int take_input(void)
{
	const struct agent_message *message;
	size_t room;
	uint8_t *to = agent_stream_room(&session.input, &room);
	ssize_t size = read(session.output.fd, to, room);
	int found;

	if (size < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!size)
		return -EPIPE;
	agent_stream_received(&session.input, (size_t)size);
	/* What is no message is passed over: the host begins anew when it hears nothing. */
	while ((found = agent_stream_next(&session.input, AGENT_START, &message)))
		if (found > 0)
			take_message(message);
	return 0;
}

/* The first is waited for; others take a tenth of a CPU. */
static void rest_from_snapshot(uint64_t cost)
{
	if (session.told)
		session.next_step = clock_raw_ms() + 9 * cost / NS_PER_MS;
}

/* False without room. */
static bool look_at_processes(void)
{
	uint64_t end = clock_raw_ms() + SNAPSHOT_TURN_MS;

	do {
		if (!snapshot_step(&session.snapshot, &session.events, &session.output))
			return false;
	} while (session.snapshot.directory && clock_raw_ms() < end &&
		 output_waiting(&session.output) < SNAPSHOT_TURN_BYTES);
	return true;
}

/* True while it could go on. */
static bool go_on_with_snapshot(void)
{
	uint64_t begun;

	if (!session.open || !session.snapshot.directory || clock_raw_ms() < session.next_step)
		return false;
	begun = clock_cpu();
	if (!look_at_processes())
		return false;
	if (!session.snapshot.directory) {
		session.told = true;
		session.next_snapshot = clock_raw_ms() + SNAPSHOT_MS;
		session.round_due = true; /* it says that this is done */
		plan_drain(0);
	}
	session.snapshot_cost += clock_cpu() - begun;
	rest_from_snapshot(clock_cpu() - begun);
	return true;
}

static int time_to_wait(bool busy)
{
	uint64_t now = clock_raw_ms(), due = UINT64_MAX;

	if (busy)
		return 0;
	if (session.drain_planned)
		due = session.drain_time;
	if (session.open && session.snapshot.directory && output_empty(&session.output) &&
	    session.next_step < due)
		due = session.next_step;
	/* What is full is waited for by itself. */
	if (output_empty(&session.output) && table_due() < due)
		due = table_due();
	if (due == UINT64_MAX)
		return -1;
	return due > now ? (int)(due - now) : 0;
}

/* While a drain is planned the rings need not wake us. */
static int wait_for_something(struct pollfd *port, int timeout)
{
	static struct pollfd fds[1 + EVENTS_CPUS_MAX];
	nfds_t count = 1;

	fds[0] = *port;
	for (unsigned int cpu = 0;
	     session.telling && !session.drain_planned && cpu < session.events.cpus; cpu++)
		fds[count++] = session.events.fds[cpu];
	if (wait_for_any(fds, count, timeout) < 0)
		return errno == EINTR ? 0 : -errno;
	*port = fds[0];
	for (nfds_t i = 1; i < count; i++)
		if (fds[i].revents & POLLIN)
			plan_drain(events_by_connector(&session.events) ? GATHER_CONNECTOR_MS
									: GATHER_MS);
	return 0;
}

/* The host's end of the port is closed: whatever was being said, nobody hears it. */
static void wait_for_host(void)
{
	close_session();
	agent_stream_reset(&session.input);
	output_open(&session.output, session.output.fd);
	wait_ms(AWAY_MS);
}

static int serve_once(void)
{
	struct pollfd port = { .fd = session.output.fd, .events = POLLIN };
	bool busy = go_on_with_snapshot();
	int error;

	if (session.drain_planned && session.drain_time <= clock_raw_ms()) {
		answer_ping(); /* one that there was no room for: before what is fetched takes all
				  there is */
		drain();
	}
	error = output_flush(&session.output);
	if (!error && table_step(&session.output))
		error = output_flush(&session.output);
	if (error)
		return error;
	if (!output_empty(&session.output))
		port.events |= POLLOUT;
	error = wait_for_something(&port, time_to_wait(busy));
	if (error)
		return error;
	/* A vsock that was reset has an error and nothing to read (net/vmw_vsock/af_vsock.c,
	 * vsock_poll()).
	 */
	if (port.revents & (POLLIN | POLLERR))
		return take_input();
	if (port.revents & (POLLHUP | POLLNVAL))
		wait_for_host();
	return 0;
}

int session_serve(int fd, bool once, const volatile bool *stop)
{
	int error = 0;

	agent_stream_reset(&session.input);
	output_open(&session.output, fd);
	session.ended = false;
	while (!error && !*stop && !(once && session.ended))
		error = serve_once();
	close_session();
	return error;
}
