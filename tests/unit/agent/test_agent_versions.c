/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host and an agent of different versions. The messages of the other side are bytes at the
 * offsets in docs/agent-protocol.md, not this build's structures. An older side sends the fields of
 * the first version only; a newer one adds fields, message types and features.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

enum {
	START = 1,
	PING = 2,
	STOP = 3,
	ASK = 4,
	HELLO = 16,
	PONG = 17,
	EVENTS = 18,
	ROUND = 19,
	TABLE = 20
};

#define MAGIC       0x746e65676173766bull
#define HEADER      8u
#define SNAPSHOT    0xffffffffu
#define UNKNOWN     40         /* a type that no version has */
#define NEW_FEATURE (1u << 30) /* nor this */
#define MORE        24u        /* bytes that a newer side adds after the known fields */
#define PID         4242u

enum age { OLDER, NEWER };

/* A message, as it is sent or came. */
struct bytes {
	uint8_t data[65536];
	uint32_t size;
};

/* Received bytes that are not parsed yet. */
struct input {
	int fd;
	uint8_t data[1 << 17];
	size_t size;
};

static uint64_t get(const struct bytes *message, size_t at, size_t size)
{
	uint64_t value = 0;

	CHECK(at + size <= message->size);
	memcpy(&value, message->data + at, size);
	return value;
}

static void put(struct bytes *message, uint64_t value, size_t size)
{
	memcpy(message->data + message->size, &value, size);
	message->size += (uint32_t)size;
}

static void begin(struct bytes *message, uint16_t type)
{
	memset(message->data, 0, 256);
	message->size = 4;
	put(message, type, 2);
	put(message, 0, 2);
}

static void send_message(int fd, struct bytes *message, enum age age)
{
	if (age == NEWER)
		for (unsigned int i = 0; i < MORE; i++)
			put(message, 0xaa, 1);
	message->size = (message->size + 7) / 8 * 8;
	memcpy(message->data, &message->size, sizeof(message->size));
	CHECK_EQUAL(send(fd, message->data, message->size, MSG_NOSIGNAL), (ssize_t)message->size);
}

static void send_unknown(int fd, enum age age)
{
	struct bytes message;

	if (age != NEWER)
		return;
	begin(&message, UNKNOWN);
	put(&message, 1, 8);
	send_message(fd, &message, age);
}

/* The next message within 10 s, of which size and type are what they can be; else false. */
static bool receive(struct input *input, struct bytes *message)
{
	struct pollfd readable = { .fd = input->fd, .events = POLLIN };

	for (;;) {
		ssize_t got;

		memcpy(&message->size, input->data, sizeof(message->size));
		if (input->size >= HEADER && input->size >= message->size)
			break;
		if (poll(&readable, 1, 10000) <= 0)
			return false;
		got = read(input->fd, input->data + input->size, sizeof(input->data) - input->size);
		if (got <= 0)
			return false;
		input->size += (size_t)got;
	}
	if (message->size < HEADER || message->size > sizeof(message->data) || message->size % 8) {
		FAIL_TEST("a message of %u bytes", message->size);
		return false;
	}
	memcpy(message->data, input->data, message->size);
	input->size -= message->size;
	memmove(input->data, input->data + message->size, input->size);
	return true;
}

static uint16_t type_of(const struct bytes *message)
{
	return (uint16_t)get(message, 4, 2);
}

/* A host that is older or newer, with this build's agent. */

struct scripted_host {
	struct input input;
	pid_t agent;
	enum age age;
	bool whole;         /* the snapshot was reported */
	unsigned int pongs; /* answers to pings */
	bool told_of_us;
	int32_t table_error; /* that it answered with */
};

static struct scripted_host host;

static void start_agent(enum age age, uint32_t version)
{
	struct bytes message;
	int fds[2];

	host = (struct scripted_host){ .age = age };
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	host.input.fd = fds[0];
	host.agent = agent_process_run(fds[1], true);
	close(fds[1]);
	begin(&message, START);
	put(&message, MAGIC, 8);
	put(&message, 77, 8);
	put(&message, version, 4);
	put(&message, 0, 4);
	send_message(host.input.fd, &message, age);
}

static void end_agent(void)
{
	kill(host.agent, SIGTERM);
	waitpid(host.agent, NULL, 0);
	close(host.input.fd);
}

static void send_ping(uint64_t time)
{
	struct bytes message;

	send_unknown(host.input.fd, host.age);
	begin(&message, PING);
	put(&message, time, 8);
	send_message(host.input.fd, &message, host.age);
}

/* A message of an unknown type. */
static void ask(void)
{
	struct bytes message;

	begin(&message, ASK);
	put(&message, 5, 8);
	put(&message, 99, 4);
	for (unsigned int i = 0; i < 4 + 8 + 8 + 4 + 20 + 8; i += 4)
		put(&message, 0, 4);
	send_message(host.input.fd, &message, host.age);
}

static void check_hello(uint32_t features, int32_t error)
{
	struct utsname name;
	struct bytes hello;

	REQUIRE(receive(&host.input, &hello));
	CHECK_EQUAL(type_of(&hello), HELLO);
	CHECK(hello.size >= 120);
	CHECK(get(&hello, 8, 8) == MAGIC);
	CHECK_EQUAL(get(&hello, 16, 8), 77);
	CHECK_EQUAL(get(&hello, 24, 4), 1);
	CHECK_EQUAL((uint32_t)get(&hello, 28, 4) & 1, features);
	CHECK(get(&hello, 32, 8) <= agent_fixture_now());
	CHECK_EQUAL(!get(&hello, 40, 4), !features);
	CHECK_EQUAL((int32_t)get(&hello, 44, 4), error);
	CHECK(!uname(&name) && !strncmp((const char *)hello.data + 48, name.release, 64));
}

/* COMM records are: type (4), misc (2), size (2), pid (4), tid (4), name; others as long as they
 * say. */
static void look_at_records(const struct bytes *events)
{
	uint64_t size;

	for (size_t at = 16; at + 8 <= events->size; at += size) {
		size = get(events, at + 6, 2);
		REQUIRE(size >= 8 && at + size <= events->size);
		if (get(events, at, 4) == PERF_RECORD_COMM && get(events, 8, 4) == SNAPSHOT)
			host.told_of_us |= get(events, at + 8, 4) == (uint64_t)getpid();
	}
}

static void take_message(const struct bytes *message)
{
	switch (type_of(message)) {
	case PONG:
		CHECK_EQUAL(get(message, 8, 8), 1000 + host.pongs++);
		CHECK(get(message, 16, 8) <= agent_fixture_now());
		CHECK(get(message, 24, 8) <= get(message, 32, 8));
		break;
	case EVENTS:
		look_at_records(message);
		break;
	case ROUND:
		CHECK(get(message, 8, 8) <= agent_fixture_now());
		host.whole = get(message, 40, 4) & 1;
		break;
	case TABLE:
		CHECK_EQUAL(get(message, 8, 8), 5);
		host.table_error = (int32_t)get(message, 16, 4);
		break;
	default:
		FAIL_TEST("a message of type %u", type_of(message));
	}
}

static void check_agent_with_host(enum age age)
{
	struct bytes message;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	start_agent(age, 1);
	check_hello(1, 0);
	send_ping(1000);
	if (age == NEWER)
		ask();
	while ((!host.whole || !host.pongs || (age == NEWER && !host.table_error)) &&
	       receive(&host.input, &message))
		take_message(&message);
	send_ping(1001);
	while (host.pongs < 2 && receive(&host.input, &message))
		take_message(&message);
	CHECK_EQUAL(host.pongs, 2);
	CHECK(host.whole && host.told_of_us);
	CHECK_EQUAL(host.table_error, age == NEWER ? -EINVAL : 0);
	end_agent();
}

TEST(agent_versions, agent_works_with_an_older_host)
{
	check_agent_with_host(OLDER);
}

TEST(agent_versions, agent_ignores_additions_of_a_newer_host)
{
	check_agent_with_host(NEWER);
}

TEST(agent_versions, agent_sends_only_its_version_to_an_incompatible_host)
{
	struct bytes message;

	start_agent(NEWER, 2);
	check_hello(0, -EPROTONOSUPPORT);
	send_ping(1000);
	while (!host.pongs && receive(&host.input, &message))
		take_message(&message);
	CHECK(host.pongs && !host.told_of_us);
	end_agent();
}

/* An agent that is older or newer, with this build's host. */

struct scripted_agent {
	struct input input;
	enum age age;
	bool reporting;
	unsigned int asked; /* things of the host's that an older one does not know */
};

static struct scripted_agent guest;

static void answer_start(const struct bytes *start)
{
	struct bytes hello;

	CHECK(start->size >= 32 && get(start, 8, 8) == MAGIC);
	CHECK_EQUAL(get(start, 24, 4), 1);
	begin(&hello, HELLO);
	put(&hello, MAGIC, 8);
	put(&hello, get(start, 16, 8), 8);
	put(&hello, 1, 4);
	put(&hello, 1 | (guest.age == NEWER ? NEW_FEATURE : 0), 4);
	put(&hello, agent_fixture_now(), 8);
	put(&hello, 2, 4);
	put(&hello, 0, 4);
	memcpy(hello.data + hello.size, "4.14.0", 7);
	hello.size += 72;
	send_message(guest.input.fd, &hello, guest.age);
}

/* One COMM, with its end: pid (4), tid (4), time (8). No fields can be added after records. */
static void send_event(void)
{
	struct bytes events;

	begin(&events, EVENTS);
	put(&events, 1, 4);
	put(&events, 0, 4);
	put(&events, PERF_RECORD_COMM, 4);
	put(&events, 0, 2);
	put(&events, 40, 2);
	put(&events, PID, 4);
	put(&events, PID, 4);
	memcpy(events.data + events.size, "old", 4);
	events.size += 8;
	put(&events, PID, 4);
	put(&events, PID, 4);
	put(&events, agent_fixture_now(), 8);
	send_message(guest.input.fd, &events, OLDER);
}

static void tell_round(void)
{
	struct bytes round;

	begin(&round, ROUND);
	put(&round, agent_fixture_now() - 1000000, 8);
	put(&round, 0, 8);
	put(&round, 7, 8);
	put(&round, 9, 8);
	put(&round, 1, 4);
	put(&round, 0, 4);
	send_message(guest.input.fd, &round, guest.age);
}

/* An older agent does not report when it read the ping. */
static void answer_ping(const struct bytes *ping)
{
	struct bytes pong;

	begin(&pong, PONG);
	put(&pong, get(ping, 8, 8), 8);
	put(&pong, agent_fixture_now(), 8);
	put(&pong, 1, 8);
	put(&pong, 2, 8);
	if (guest.age == NEWER)
		put(&pong, get(&pong, 16, 8), 8);
	send_event();
	send_unknown(guest.input.fd, guest.age);
	send_message(guest.input.fd, &pong, guest.age);
	tell_round();
}

static void answer_host(const struct agent_fixture *fixture)
{
	struct pollfd readable = { .fd = fixture->guest, .events = POLLIN };
	struct bytes message;

	while (poll(&readable, 1, 10) > 0 && receive(&guest.input, &message)) {
		if (type_of(&message) == START)
			answer_start(&message);
		else if (type_of(&message) == PING)
			answer_ping(&message);
		else
			guest.asked += type_of(&message) != STOP;
	}
}

/* Number of records of the process in the ring. */
static unsigned int count_reported(struct ring *ring)
{
	const struct ring_record *record;
	unsigned int count = 0;

	while ((record = ring_read(ring))) {
		const struct sideband *sideband = (const struct sideband *)record->payload;

		count += record->type == RECORD_SIDEBAND && sideband->type == SIDEBAND_COMM &&
			 sideband->pid == PID;
	}
	ring_read_done(ring);
	return count;
}

static void check_host_with_agent(enum age age)
{
	const struct agent_image image = { .pid = PID, .build_id_size = 20, .path = "/bin/old" };
	struct agent_statistics statistics;
	struct agent_fixture fixture;
	unsigned int reported = 0;

	guest = (struct scripted_agent){ .age = age };
	REQUIRE(agent_fixture_set_up(&fixture, TEST_ITSELF));
	guest.input.fd = fixture.guest;
	CHECK_EQUAL(agent_request_symbols(fixture.agent, &image), 0);
	for (int i = 0; i < 2000 && reported < 5; i++) {
		answer_host(&fixture);
		reported += count_reported(fixture.ring);
		CHECK(agent_request_kernel(fixture.agent, 0));
		CHECK(agent_request_tasks(fixture.agent));
	}
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK(reported >= 5);
	CHECK_EQUAL(guest.asked, 0);
	CHECK_EQUAL(statistics.sessions, 1);
	CHECK_EQUAL(statistics.version, 1);
	CHECK(statistics.features & AGENT_FEATURE_EVENTS);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.unstable, 7);
	CHECK_EQUAL(statistics.cut, 9);
	CHECK(statistics.snapshot_done);
	CHECK_STRING(statistics.release, "4.14.0");
}

TEST(agent_versions, host_sends_an_older_agent_no_request_that_it_does_not_support)
{
	check_host_with_agent(OLDER);
}

TEST(agent_versions, host_ignores_messages_of_a_newer_agent)
{
	check_host_with_agent(NEWER);
}
