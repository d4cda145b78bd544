/* SPDX-License-Identifier: Apache-2.0 */
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

/* Events are collected for this time, so that a busy guest wakes the agent at most a hundred times
 * a second; with the process connector, which causes a wake-up per event, forty times.
 */
#define GATHER_MS           10
#define GATHER_CONNECTOR_MS 25
/* Poll interval while the host has its end of the port closed: poll(2) would return at once. */
#define AWAY_MS 250
/* Processes of a snapshot are read for this time, or until this size is to be sent, in one turn:
 * each write causes a VM exit, which costs more than reading a process.
 */
#define SNAPSHOT_TURN_MS    10
#define SNAPSHOT_TURN_BYTES 16384
/* Pause after a snapshot before the next one can fill a gap. */
#define SNAPSHOT_MS 1000
/* If the kernel does not report mappings, all processes are read again after this time, or later,
 * so that it takes at most 1/1500 of a CPU.
 */
#define RESCAN_MS   10000
#define RESCAN_REST 1500
/* Scans of new processes: number per turn and time between turns. They take at most 1/600 of a CPU
 * over some seconds, or ten scans a second if each is expensive. If the guest starts processes
 * faster, the rest are scanned later.
 */
#define SCANS_PER_TURN   16
#define SCAN_INTERVAL_MS 50
#define SCAN_REST        600
#define SCAN_REST_MAX_MS 100
#define SCAN_BURST_MS    4000
/* A record gets its timestamp a moment before it is visible in its ring. A drain covers everything
 * older than its start minus this time.
 */
#define IN_FLIGHT_NS 1000000u

struct session {
	struct agent_stream input;
	struct output output;
	struct events events;
	struct snapshot snapshot;
	bool open;               /* between AGENT_START and AGENT_STOP */
	bool reporting;          /* the host has sent a ping: it can convert times now */
	uint64_t id;             /* chosen by the host */
	bool ended;              /* a session has ended */
	bool snapshot_sent;      /* the first snapshot is complete */
	uint64_t next_snapshot;  /* ms: earliest time */
	uint64_t next_step;      /* ms: of a snapshot after the first */
	uint64_t snapshot_cost;  /* ns of CPU time, of the latest */
	uint64_t scans_paid;     /* ms: rate limit, advances with the cost of each scan */
	bool round_due;          /* send AGENT_ROUND with the next drain */
	bool ping_pending;       /* send AGENT_PONG, too */
	uint64_t ping_host_time; /* agent_ping.host_time */
	uint64_t ping_received;  /* ns, clock_raw() */
	bool drain_planned;      /* at drain_time */
	uint64_t drain_time;     /* ms */
};

/* Too large for a stack; there is one session at a time. */
static struct session session;

static uint64_t read_tsc(void)
{
	uint64_t tsc;

	/* LFENCE on both sides: neither earlier nor later than its place in the code (SDM vol. 2,
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
	session.open = session.reporting = false;
	session.ended = true;
	session.drain_planned = session.round_due = session.ping_pending = false;
	table_cancel();
	jit_maps_reset();
	reference_tasks_cancel();
	cgroup_reset();
	snapshot_end(&session.snapshot);
	events_close(&session.events);
}

/* Drops unsent messages of an earlier session. */
static void open_session(const struct agent_start *start)
{
	struct agent_hello *hello;
	struct utsname name;
	int error;

	if (session.open && session.id == start->session)
		return; /* repeated by a host that had to wait */
	close_session();
	output_drop(&session.output);
	error = start->version == AGENT_PROTOCOL_VERSION ? events_open(&session.events)
							 : -EPROTONOSUPPORT;
	session.open = true;
	session.id = start->session;
	session.reporting = false;
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

/* Without events a snapshot would silently become wrong. */
static void begin_reporting(void)
{
	if (session.reporting)
		return;
	session.reporting = true;
	session.snapshot_sent = !session.events.cpus;
	if (session.events.cpus)
		snapshot_begin(&session.snapshot, events_by_connector(&session.events));
}

static uint64_t rescan_interval(void)
{
	uint64_t rest = RESCAN_REST * session.snapshot_cost / NS_PER_MS;

	return rest > RESCAN_MS ? rest : RESCAN_MS;
}

/* Starts another snapshot if events were lost. */
static void fill_gap(void)
{
	bool rescan = events_by_connector(&session.events) &&
		      clock_raw_ms() >= session.next_snapshot - SNAPSHOT_MS + rescan_interval();

	if (session.snapshot.directory || clock_raw_ms() < session.next_snapshot ||
	    !(session.events.gap || rescan))
		return;
	session.events.gap = false;
	session.snapshot_cost = 0;
	snapshot_begin(&session.snapshot, true);
}

/* The rings are drained up to TIME. Without room the round is skipped, which loses no events. */
static void send_round(uint64_t time)
{
	struct agent_round *round = output_message(&session.output, AGENT_ROUND, sizeof(*round));

	if (!round)
		return;
	round->guest_time = time - IN_FLIGHT_NS;
	round->lost = session.events.lost;
	round->unstable = session.snapshot.unstable + session.events.connector.missed;
	round->cut = session.snapshot.cut;
	round->flags = session.snapshot_sent ? AGENT_ROUND_SNAPSHOT_DONE : 0;
}

/* ms until the rate limit allows the next scan. */
static uint64_t time_to_scan(void)
{
	uint64_t now = clock_raw_ms();

	return session.scans_paid > now + SCAN_BURST_MS ? session.scans_paid - now - SCAN_BURST_MS
							: 0;
}

static bool scan(pid_t pid)
{
	uint64_t begun = clock_cpu(), now = clock_raw_ms(), rest;
	bool sent = snapshot_process(&session.snapshot, pid, &session.events, &session.output);

	rest = SCAN_REST * (clock_cpu() - begun) / NS_PER_MS;
	if (session.scans_paid < now)
		session.scans_paid = now;
	session.scans_paid += rest < SCAN_REST_MAX_MS ? rest : SCAN_REST_MAX_MS;
	return sent;
}

/* Scans processes of which the connector reports only the start. */
static void scan_new(void)
{
	struct connector *connector = &session.events.connector;
	pid_t pid;

	if (!events_by_connector(&session.events))
		return;
	for (int i = 0; i < SCANS_PER_TURN && !time_to_scan() &&
			(pid = connector_due(connector, clock_raw_ms()));
	     i++)
		if (!scan(pid)) {
			session.events.gap = true; /* the next snapshot includes it */
			break;
		}
	if (connector->due_count)
		plan_drain(time_to_scan() > SCAN_INTERVAL_MS ? time_to_scan() : SCAN_INTERVAL_MS);
}

/* Queued after the fetched events, so that this clock exchange covers them and one write sends
 * both. If the queue is full the answer waits; pong->received accounts for the delay.
 */
static void answer_ping(void)
{
	struct agent_pong *pong;

	if (!session.ping_pending)
		return;
	pong = output_message(&session.output, AGENT_PONG, sizeof(*pong));
	if (!pong) {
		plan_drain(GATHER_MS);
		return;
	}
	session.ping_pending = false;
	pong->host_time = session.ping_host_time;
	pong->received = session.ping_received;
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
	/* A round covers the JIT maps, too: send their new lines first. */
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
	output_flush(&session.output); /* an error recurs with the next call */
	scan_new();
	fill_gap();
}

static void take_ping(const struct agent_ping *ping)
{
	session.ping_pending = session.round_due = true;
	session.ping_host_time = ping->host_time;
	session.ping_received = clock_raw();
	begin_reporting();
	events_open_new_cpus(&session.events);
	drain();
}

static void request_tasks(void)
{
	reference_tasks_request();
	plan_drain(0);
}

static void take_request(const struct agent_message *message)
{
	const struct agent_request *request = agent_payload(message, sizeof(*request));

	if (request && request->kind == AGENT_TABLE_JIT_MAP)
		jit_maps_request(request->pid);
	else if (request && request->kind == AGENT_TABLE_TASKS)
		request_tasks();
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
	else if (message->type == AGENT_REQUEST && session.reporting)
		take_request(message);
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
	/* Invalid messages are skipped: the host restarts the session if it gets no answer. */
	while ((found = agent_stream_next(&session.input, AGENT_START, &message)))
		if (found > 0)
			take_message(message);
	return 0;
}

/* The host waits for the first snapshot; later ones take a tenth of a CPU. */
static void rest_after_snapshot(uint64_t cost)
{
	if (session.snapshot_sent)
		session.next_step = clock_raw_ms() + 9 * cost / NS_PER_MS;
}

/* False if the send queue is full. */
static bool read_processes(void)
{
	uint64_t end = clock_raw_ms() + SNAPSHOT_TURN_MS;

	do {
		if (!snapshot_step(&session.snapshot, &session.events, &session.output))
			return false;
	} while (session.snapshot.directory && clock_raw_ms() < end &&
		 output_waiting(&session.output) < SNAPSHOT_TURN_BYTES);
	return true;
}

/* True if it made progress. */
static bool continue_snapshot(void)
{
	uint64_t begun;

	if (!session.open || !session.snapshot.directory || clock_raw_ms() < session.next_step)
		return false;
	begun = clock_cpu();
	if (!read_processes())
		return false;
	if (!session.snapshot.directory) {
		session.snapshot_sent = true;
		session.next_snapshot = clock_raw_ms() + SNAPSHOT_MS;
		session.round_due = true; /* it reports the end of the snapshot */
		plan_drain(0);
	}
	session.snapshot_cost += clock_cpu() - begun;
	rest_after_snapshot(clock_cpu() - begun);
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
	/* With a non-empty queue, POLLOUT wakes us. */
	if (output_empty(&session.output) && table_due() < due)
		due = table_due();
	if (due == UINT64_MAX)
		return -1;
	return due > now ? (int)(due - now) : 0;
}

/* While a drain is planned the rings do not have to wake us. */
static int wait_for_something(struct pollfd *port, int timeout)
{
	static struct pollfd fds[1 + EVENTS_CPUS_MAX];
	nfds_t count = 1;

	fds[0] = *port;
	for (unsigned int cpu = 0;
	     session.reporting && !session.drain_planned && cpu < session.events.cpus; cpu++)
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

/* The host closed its end of the port: drop everything. */
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
	bool busy = continue_snapshot();
	int error;

	if (session.drain_planned && session.drain_time <= clock_raw_ms()) {
		answer_ping(); /* a deferred one, before events fill the queue */
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
	/* A reset vsock has POLLERR without POLLIN (net/vmw_vsock/af_vsock.c, vsock_poll()).
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
