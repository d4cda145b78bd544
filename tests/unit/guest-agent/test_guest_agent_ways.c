/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions with a guest's agent that begin and end, the ways to it, and hostile ends played by the
 * test. */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/sockios.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

static bool is_second_session(const struct agent_statistics *statistics)
{
	return statistics->sessions == 2 && statistics->snapshot_done;
}

/* A new agent on the same port: the host gets no answer in its session, and begins another. */
TEST(guest_agent, gets_a_new_session_after_a_kill)
{
	struct agent_statistics statistics;
	struct agent_options options = { 0 };
	struct agent_fixture fixture = { .guest = -1 };
	int fds[2];

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	options.fd = fds[0];
	options.ring = fixture.ring;
	fixture.process = agent_process_run(fds[1], true);
	REQUIRE(!agent_start(&fixture.agent, &options));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	kill(fixture.process, SIGKILL);
	waitpid(fixture.process, NULL, 0);
	fixture.process = agent_process_run(fds[1], true);
	close(fds[1]);
	CHECK(agent_fixture_wait(&fixture, is_second_session));
	agent_fixture_tear_down(&fixture, &statistics);
}

/* A listener on the loopback address, with its number; -1 where there is none (module
 * vsock_loopback). */
static int listen_by_vsock(unsigned int *port)
{
	struct sockaddr_vm any = { .svm_family = AF_VSOCK,
				   .svm_cid = VMADDR_CID_ANY,
				   .svm_port = VMADDR_PORT_ANY };
	struct sockaddr_vm local = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_LOCAL };
	socklen_t size = sizeof(any);
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0), probe;

	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&any, &size))
		goto none;
	*port = local.svm_port = any.svm_port;
	probe = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!connect(probe, (struct sockaddr *)&local, sizeof(local))) {
		close(accept(fd, NULL, NULL));
		close(probe);
		return fd;
	}
	close(probe);
none:
	if (fd >= 0)
		close(fd);
	return -1;
}

static pid_t run_agent_by_vsock(unsigned int port)
{
	char address[32];
	pid_t child = fork();

	if (child)
		return child;
	snprintf(address, sizeof(address), "%u:%u", VMADDR_CID_LOCAL, port);
	execl(AGENT, AGENT, "--vsock", address, NULL);
	_exit(127);
}

/* It connects by itself, and again when the host's end was closed: twice here. */
TEST(guest_agent, reaches_the_host_by_vsock)
{
	struct agent_statistics statistics;
	struct agent_fixture fixture = { .guest = -1 };
	unsigned int port = 0;
	int listener = listen_by_vsock(&port);

	if (listener < 0)
		SKIP("no vsock connects this machine with itself (Linux module vsock_loopback)");
	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	fixture.process = run_agent_by_vsock(port);
	for (int i = 0; i < 2; i++) {
		struct agent_options options = { .fd = accept(listener, NULL, NULL),
						 .ring = fixture.ring };

		REQUIRE(options.fd >= 0);
		REQUIRE(!agent_start(&fixture.agent, &options));
		CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
		if (!i)
			agent_stop(fixture.agent, NULL);
	}
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.sessions, 1);
	close(listener);
}

/* 20 s at most; then it is killed, and does not have ended by itself. */
static bool ends_by_itself(pid_t process)
{
	for (int i = 0; i < 2000; i++) {
		if (waitpid(process, NULL, WNOHANG) == process)
			return true;
		usleep(10000);
	}
	kill(process, SIGKILL);
	waitpid(process, NULL, 0);
	return false;
}

/* Like a reset vsock, a pipe without a reader has POLLERR without POLLIN. */
TEST(guest_agent, lets_go_of_a_connection_that_has_an_error_alone)
{
	struct pollfd error;
	pid_t process;
	int fds[2];

	REQUIRE(!pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	close(fds[0]);
	error = (struct pollfd){ .fd = fds[1], .events = POLLIN };
	CHECK_EQUAL(poll(&error, 1, 0), 1);
	CHECK_EQUAL(error.revents, POLLERR);
	process = agent_process_run(fds[1], true);
	close(fds[1]);
	CHECK(ends_by_itself(process));
}

static void say(int fd, const void *bytes, size_t size)
{
	struct pollfd room = { .fd = fd, .events = POLLOUT };
	const uint8_t *from = bytes;

	while (size) {
		ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);

		if (sent > 0) {
			from += sent;
			size -= (size_t)sent;
		} else if (poll(&room, 1, 5000) <= 0) {
			FAIL_TEST("the host takes no more");
			return;
		}
	}
}

struct hello {
	uint32_t size;
	uint16_t type, reserved;
	struct agent_hello hello;
};

/* The host's next message within 5 s, or NULL. */
static const struct agent_message *listen_to_host(int fd, struct agent_stream *stream)
{
	struct pollfd input = { .fd = fd, .events = POLLIN };
	const struct agent_message *message;

	while (agent_stream_next(stream, AGENT_START, &message) <= 0) {
		size_t room;
		uint8_t *to = agent_stream_room(stream, &room);
		ssize_t size;

		if (poll(&input, 1, 5000) <= 0)
			return NULL;
		size = read(fd, to, room);
		agent_stream_received(stream, size > 0 ? (size_t)size : 0);
	}
	return message;
}

/* Answers the host's AGENT_START as an agent does. */
static void say_hello_on(int fd, struct agent_stream *stream)
{
	struct hello hello = { .size = sizeof(hello), .type = AGENT_HELLO };
	const struct agent_message *message;
	const struct agent_start *start;

	agent_stream_reset(stream);
	message = listen_to_host(fd, stream);
	start = message ? agent_payload(message, sizeof(*start)) : NULL;
	if (!start) {
		FAIL_TEST("the host does not begin");
		return;
	}
	hello.hello = (struct agent_hello){ .magic = AGENT_MAGIC,
					    .session = start->session,
					    .version = 1,
					    .guest_time = agent_fixture_now() };
	memset(hello.hello.release, 'x', sizeof(hello.hello.release));
	hello.hello.release[0] = '\033';
	say(fd, &hello, sizeof(hello));
}

static void say_hello(int fd)
{
	static struct agent_stream stream;

	say_hello_on(fd, &stream);
}

/* Answers pings until the host knows the time. */
static void say_time(struct agent_fixture *fixture, struct agent_stream *stream)
{
	struct agent_statistics statistics = { 0 };
	const struct agent_message *message;

	while (!statistics.clock_error && (message = listen_to_host(fixture->guest, stream))) {
		struct {
			struct agent_message header;
			struct agent_pong pong;
		} __attribute__((packed, aligned(8))) pong = {
			.header = { .size = sizeof(pong), .type = AGENT_PONG },
			.pong.guest_time = agent_fixture_now(),
		};

		if (message->type != AGENT_PING)
			continue;
		memcpy(&pong.pong.host_time, message->payload, sizeof(pong.pong.host_time));
		say(fixture->guest, &pong, sizeof(pong));
		agent_statistics(fixture->agent, &statistics);
	}
}

/* One way to the guest after the other; none at first. */
struct ways {
	atomic_int asked;
	int fds[2];
};

static int give_way(void *context)
{
	struct ways *ways = context;
	int asked = ways->asked++;

	return !asked ? -EBUSY : asked < 3 ? ways->fds[asked - 1] : -ECONNREFUSED;
}

static bool is_busy(const struct agent_statistics *statistics)
{
	return !statistics->connected && statistics->unconnected == -EBUSY;
}

static bool is_answered_again(const struct agent_statistics *statistics)
{
	return statistics->sessions == 2;
}

static bool has_no_way(const struct agent_statistics *statistics)
{
	return !statistics->open && statistics->unconnected == -ECONNREFUSED;
}

TEST(guest_agent, finds_another_way_to_the_guest)
{
	struct agent_options options = { .fd = -1, .connect = give_way };
	struct agent_fixture fixture = { .guest = -1 };
	struct ways ways = { 0 };
	int guests[2];

	for (int i = 0; i < 2; i++) {
		int fds[2];

		REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
		ways.fds[i] = fds[0];
		guests[i] = fds[1];
	}
	REQUIRE(!ring_create(&fixture.ring, 4 << 20));
	options.ring = fixture.ring;
	options.context = &ways;
	REQUIRE(!agent_start(&fixture.agent, &options));
	CHECK(agent_fixture_wait(&fixture, is_busy));
	say_hello(guests[0]);
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	close(guests[0]);
	say_hello(guests[1]);
	CHECK(agent_fixture_wait(&fixture, is_answered_again));
	close(guests[1]);
	CHECK(agent_fixture_wait(&fixture, has_no_way));
	agent_fixture_tear_down(&fixture, NULL);
}

TEST(guest_agent, hostile_guest_does_not_stop_the_host)
{
	static uint8_t garbage[1 << 16];
	struct agent_statistics statistics;
	struct agent_fixture fixture;

	srand(9);
	REQUIRE(agent_fixture_set_up(&fixture, TEST_ITSELF));
	for (int round = 0; round < 8; round++) {
		say_hello(fixture.guest);
		CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
		for (size_t i = 0; i < sizeof(garbage); i++)
			garbage[i] = (uint8_t)rand();
		/* sometimes with a header that is right */
		if (round % 2)
			*(struct agent_message *)garbage =
				(struct agent_message){ .size = 4096, .type = AGENT_EVENTS };
		say(fixture.guest, garbage, sizeof(garbage));
	}
	say_hello(fixture.guest);
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK(statistics.refused >= 8);
	CHECK_EQUAL(strlen(statistics.release), AGENT_RELEASE_MAX - 1);
	CHECK_EQUAL(statistics.release[0], '?');
}

static bool is_given_up(const struct agent_statistics *statistics)
{
	return !statistics->open;
}

/* Events without end in a ring that is not read: some wait, the others are dropped and counted. */
TEST(guest_agent, flood_fills_only_the_ring_and_the_queue)
{
	static struct {
		struct agent_message header;
		struct agent_events events;
		uint8_t records[40 * 1000];
	} __attribute__((packed, aligned(8))) message;
	static struct agent_stream stream;
	struct agent_statistics statistics;
	struct ring_statistics ring;
	struct agent_fixture fixture;
	uint64_t time = agent_fixture_now();

	message.header = (struct agent_message){ .size = sizeof(message), .type = AGENT_EVENTS };
	for (size_t i = 0; i < sizeof(message.records); i += 40) {
		struct perf_event_header header = { .type = PERF_RECORD_COMM, .size = 40 };
		uint32_t ids[] = { 5, 5 };

		memcpy(message.records + i, &header, sizeof(header));
		memcpy(message.records + i + 8, ids, sizeof(ids));
		memcpy(message.records + i + 16, "flood", 6);
		memcpy(message.records + i + 32, &time, sizeof(time));
	}
	REQUIRE(agent_fixture_set_up(&fixture, TEST_ITSELF));
	say_hello_on(fixture.guest, &stream);
	say_time(&fixture, &stream);
	for (int i = 0; i < 300; i++)
		say(fixture.guest, &message, sizeof(message));
	CHECK(agent_fixture_wait(&fixture, is_given_up));
	agent_statistics(fixture.agent, &statistics);
	ring_statistics(fixture.ring, &ring);
	agent_fixture_tear_down(&fixture, NULL);
	CHECK_EQUAL(ring.lost, 0);
	CHECK(statistics.lost > 0);
	/* The ring also has the first round of the session and the first record of JIT maps. */
	CHECK_EQUAL(statistics.records, ring.written - 2 + statistics.lost);
}

static bool is_throttled(const struct agent_statistics *statistics)
{
	return statistics->throttled > 500000000;
}

/* Rounds without end, in small messages: once the guest has used its burst, the thread of the host
 * sleeps most of the time. */
TEST(guest_agent, flood_waits_for_the_guests_share_of_the_processor)
{
	struct round {
		struct agent_message header;
		struct agent_round round;
	} __attribute__((packed, aligned(8)));
	static struct round rounds[1000];
	static struct agent_stream stream;
	struct agent_statistics statistics = { 0 };
	struct agent_fixture fixture;
	uint64_t sent = 0, begin, throttled;

	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
		rounds[i].header =
			(struct agent_message){ .size = sizeof(struct round), .type = AGENT_ROUND };
		rounds[i].round.guest_time = agent_fixture_now();
	}
	REQUIRE(agent_fixture_set_up(&fixture, TEST_ITSELF));
	say_hello_on(fixture.guest, &stream);
	while (!is_throttled(&statistics) && sent < 100000000) {
		say(fixture.guest, rounds, sizeof(rounds));
		sent += sizeof(rounds) / sizeof(rounds[0]);
		agent_statistics(fixture.agent, &statistics);
	}
	CHECK(is_throttled(&statistics));
	begin = agent_fixture_now();
	throttled = statistics.throttled;
	while (agent_fixture_now() - begin < 500000000)
		say(fixture.guest, rounds, sizeof(rounds));
	agent_statistics(fixture.agent, &statistics);
	/* It is 19 of 20 parts where this is all that the machine does. */
	CHECK(statistics.throttled - throttled > (agent_fixture_now() - begin) / 4);
	agent_fixture_tear_down(&fixture, NULL);
}

/* Has the other end of FD read all that was sent there? Within 20 s. */
static bool is_read(int fd)
{
	int unread = 1;

	for (int i = 0; i < 2000 && unread; i++) {
		usleep(10000);
		if (ioctl(fd, SIOCOUTQ, &unread))
			return false;
	}
	return !unread;
}

/* More than it has room for was waiting to be read: without the answer the host would ask no more.
 */
TEST(guest_agent, answers_a_ping_that_there_was_no_room_for)
{
	struct {
		struct agent_message header;
		struct agent_start start;
	} start = {
		.header = { .size = sizeof(start), .type = AGENT_START },
		.start = { .magic = AGENT_MAGIC, .session = 78, .version = AGENT_PROTOCOL_VERSION }
	};
	struct {
		struct agent_message header;
		struct agent_ping ping;
	} ping = { .header = { .size = sizeof(ping), .type = AGENT_PING } };
	const struct agent_message *message = NULL;
	uint64_t answered = 0; /* the latest */
	static struct agent_stream stream;
	struct pollfd input;
	pid_t process;
	int fds[2];

	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	process = agent_process_run(fds[1], false);
	close(fds[1]);
	say(fds[0], &start, sizeof(start));
	/* Each has an answer and a round, of 100 bytes together: more than a socket and the buffer
	 * hold. */
	for (ping.ping.host_time = 1; ping.ping.host_time < 12000; ping.ping.host_time++)
		say(fds[0], &ping, sizeof(ping));
	CHECK(is_read(fds[0]));
	input = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	agent_stream_reset(&stream);
	for (uint64_t end = agent_fixture_now() + 20000000000u;
	     answered < 11999 && agent_fixture_now() < end;) {
		size_t room;
		uint8_t *to = agent_stream_room(&stream, &room);
		ssize_t size = poll(&input, 1, 1000) > 0 ? read(fds[0], to, room) : 0;

		agent_stream_received(&stream, size > 0 ? (size_t)size : 0);
		while (agent_stream_next(&stream, AGENT_HELLO, &message) > 0)
			if (message->type == AGENT_PONG)
				answered = ((const struct agent_pong *)message->payload)->host_time;
	}
	CHECK_EQUAL(answered, 11999);
	kill(process, SIGTERM);
	waitpid(process, NULL, 0);
	close(fds[0]);
}

/*
 * A host that sends garbage and then a valid request gets its answer; one that does not read does
 * not block the agent.
 */
TEST(guest_agent, hostile_host_does_not_stop_the_agent)
{
	struct {
		uint32_t size;
		uint16_t type, reserved;
		struct agent_start start;
	} start = { .size = sizeof(start),
		    .type = AGENT_START,
		    .start = { .magic = AGENT_MAGIC, .session = 77 } };
	static uint8_t garbage[1 << 16];
	static struct agent_stream stream;
	const struct agent_message *message = NULL;
	const struct agent_hello *hello = NULL;
	struct pollfd input;
	int fds[2], status;
	pid_t process;

	srand(10);
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	process = agent_process_run(fds[1], true);
	close(fds[1]);
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)rand();
	say(fds[0], garbage, sizeof(garbage));
	say(fds[0], &start, sizeof(start));
	input = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	agent_stream_reset(&stream);
	while (!hello && poll(&input, 1, 10000) > 0) {
		size_t room;
		uint8_t *to = agent_stream_room(&stream, &room);
		ssize_t size = read(fds[0], to, room);

		agent_stream_received(&stream, size > 0 ? (size_t)size : 0);
		if (agent_stream_next(&stream, AGENT_HELLO, &message) > 0)
			hello = agent_payload(message, sizeof(*hello));
	}
	REQUIRE(hello != NULL);
	CHECK_EQUAL(hello->session, 77);
	/* It handles signals even if its output is not read. */
	kill(process, SIGTERM);
	CHECK_EQUAL(waitpid(process, &status, 0), process);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	close(fds[0]);
}

static bool has_handled_tasks(const struct agent_statistics *statistics)
{
	return statistics->refused || statistics->tasks_error;
}

/* The search takes time, so only one answer per request counts. */
TEST(guest_agent, unrequested_tasks_are_refused)
{
	struct {
		struct agent_message header;
		struct agent_tasks tasks;
	} __attribute__((packed, aligned(8)))
	told = { .header = { .size = sizeof(told), .type = AGENT_TASKS }, .tasks.error = -EPERM };
	struct agent_statistics statistics;
	struct agent_fixture fixture;

	REQUIRE(agent_fixture_set_up(&fixture, TEST_ITSELF));
	say_hello(fixture.guest);
	say(fixture.guest, &told, sizeof(told));
	CHECK(agent_fixture_wait(&fixture, has_handled_tasks));
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.refused, 1);
	CHECK_EQUAL(statistics.tasks_error, 0);
}
