/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of what a guest tells: an agent, played by the test, whose clock is not the host's, with
 * messages that take their time; each event that it tells is known by the host's clock.
 */
#include <assert.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "shared/agent_protocol.h"
#include "shared/ring_layout.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/clock_files.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_client.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_tsc.h"

#define MS         1000000ull
#define EVENTS_MAX 100000u

struct guest {
	int fd;
	struct agent_stream stream;
	struct ring *ring;
	struct agent *agent;
	/* Its clock is PPM fast, and was behind so far that it has a value of its own. */
	int ppm;
	uint64_t behind;
	uint32_t version; /* that it says it speaks */
	useconds_t slow;  /* us: its messages take so long, there and back each */
	bool open;
	/* So many answers are all that it tells, and the last of them comes behind what can have no
	 * place; 0: it tells all. */
	unsigned int breaks;
	unsigned int answers; /* to pings */
	bool runs_back;       /* with each of them */
	struct {
		bool open; /* what is said waits here, to be sent at once */
		size_t size;
		uint8_t bytes[1024];
	} parcel;
	unsigned int asked;        /* for symbols of what it has mapped */
	uint32_t told;             /* events: each of a process of its number */
	uint64_t time[EVENTS_MAX]; /* of each, by the host's clock */
	/* read of the ring */
	uint32_t placed, wrong, latest;
	uint64_t latest_time, largest_error, losses;
	struct sideband_lost lost; /* the latest, */
	uint64_t before_lost;      /* and the time of what was told right before it */
	bool emptied;              /* the guest said that a ring is empty */
};

static struct guest guest;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t guest_time(uint64_t host)
{
	return host - guest.behind + (uint64_t)((__int128)host * guest.ppm / 1000000);
}

static void send_bytes(const void *bytes, size_t size)
{
	struct pollfd output = { .fd = guest.fd, .events = POLLOUT };

	CHECK_EQUAL(poll(&output, 1, 20000), 1);
	CHECK_EQUAL(send(guest.fd, bytes, size, MSG_NOSIGNAL), size);
}

static void say(enum agent_message_type type, const void *payload, size_t size)
{
	struct {
		struct agent_message header;
		uint8_t payload[256];
	} __attribute__((aligned(8))) message = {
		.header = { .size = (uint32_t)(sizeof(message.header) + size),
			    .type = (uint16_t)type },
	};

	memcpy(message.payload, payload, size);
	if (!guest.parcel.open) {
		send_bytes(&message, message.header.size);
		return;
	}
	assert(message.header.size <= sizeof(guest.parcel.bytes) - guest.parcel.size);
	memcpy(guest.parcel.bytes + guest.parcel.size, &message, message.header.size);
	guest.parcel.size += message.header.size;
}

static void send_parcel(void)
{
	guest.parcel.open = false;
	send_bytes(guest.parcel.bytes, guest.parcel.size);
}

/* Something happens now on CPU: a process gets a name. */
static void tell_event_of(uint32_t cpu)
{
	struct {
		struct agent_events events;
		struct perf_event_header header;
		uint32_t pid, tid;
		char comm[8];
		struct agent_record_end end;
	} event = { .events.cpu = cpu,
		    .header = { .type = PERF_RECORD_COMM, .size = 40 },
		    .comm = "event" };

	if (guest.told + 1 == EVENTS_MAX)
		return;
	event.pid = event.tid = ++guest.told;
	guest.time[guest.told] = now();
	event.end.time = guest_time(guest.time[guest.told]);
	say(AGENT_EVENTS, &event, sizeof(event));
}

static void tell_event(void)
{
	tell_event_of(0);
}

/* The ring of CPU has room again; a COUNT of 0: it is empty. */
static void tell_lost(uint32_t cpu, uint64_t count)
{
	struct {
		struct agent_events events;
		struct perf_event_header header;
		uint64_t id, count;
		struct agent_record_end end;
	} lost = { .events.cpu = cpu,
		   .header = { .type = PERF_RECORD_LOST, .size = 40 },
		   .count = count,
		   .end.time = guest_time(now()) };

	guest.emptied |= !count;
	say(AGENT_EVENTS, &lost, sizeof(lost));
}

static void rest(void)
{
	usleep(guest.slow + (useconds_t)(rand() % 3000));
}

static void answer_start(const struct agent_start *start)
{
	struct agent_hello hello = { .magic = AGENT_MAGIC,
				     .session = start->session,
				     .version = guest.version };

	hello.features = AGENT_FEATURE_EVENTS | AGENT_FEATURE_BUILD_IDS | AGENT_FEATURE_TABLES;
	hello.guest_time = guest_time(now());
	guest.open = guest.version == AGENT_PROTOCOL_VERSION;
	say(AGENT_HELLO, &hello, sizeof(hello));
}

static void run_back_behind_a_loss(void)
{
	tell_lost(1, 1);
	guest.behind += 3000 * MS;
	tell_event();
	guest.behind -= 3000 * MS;
}

static void answer_ping(const struct agent_ping *ping)
{
	struct agent_pong pong = { .host_time = ping->host_time };
	struct agent_round round = { 0 };

	rest();
	guest.behind += guest.runs_back ? 3000 * MS : 0;
	pong.received = guest_time(now());
	if (guest.breaks == 1) {
		guest.parcel.open = true;
		run_back_behind_a_loss();
	}
	rest();
	pong.tsc_before = tsc_mark_now().tsc;
	pong.guest_time = guest_time(now());
	pong.tsc_after = tsc_mark_now().tsc;
	rest();
	/* an older agent's, every other time */
	say(AGENT_PONG, &pong, guest.answers++ % 2 ? sizeof(pong) : AGENT_PONG_MIN);
	if (guest.parcel.open)
		send_parcel();
	if (guest.breaks) {
		guest.breaks--;
		return;
	}
	tell_event();
	round.guest_time = guest_time(now()) - MS;
	say(AGENT_ROUND, &round, sizeof(round));
}

static void answer(const struct agent_message *message)
{
	if (message->type == AGENT_START)
		answer_start((const struct agent_start *)message->payload);
	if (message->type == AGENT_PING && guest.open)
		answer_ping((const struct agent_ping *)message->payload);
	guest.asked += message->type == AGENT_REQUEST;
}

static void listen_to_host(void)
{
	struct pollfd input = { .fd = guest.fd, .events = POLLIN };
	const struct agent_message *message;
	size_t room;
	uint8_t *to = agent_stream_room(&guest.stream, &room);
	ssize_t size = poll(&input, 1, 1) > 0 ? read(guest.fd, to, room) : 0;

	agent_stream_received(&guest.stream, size > 0 ? (size_t)size : 0);
	while (agent_stream_next(&guest.stream, AGENT_START, &message) > 0)
		answer(message);
}

static void check_event(const struct sideband *record)
{
	uint64_t truth = guest.time[record->pid];
	uint64_t away = record->time > truth ? record->time - truth : truth - record->time;

	CHECK(record->pid > guest.latest && record->time >= guest.latest_time);
	guest.latest = record->pid;
	guest.latest_time = record->time;
	guest.placed++;
	guest.wrong += away > record->time_error;
	if (record->time_error > guest.largest_error)
		guest.largest_error = record->time_error;
}

static void read_ring(void)
{
	const struct ring_record *record;

	while ((record = ring_read(guest.ring))) {
		const struct sideband *sideband = (const struct sideband *)record->payload;

		if (record->type != RECORD_SIDEBAND)
			continue;
		if (sideband->type == SIDEBAND_COMM)
			check_event(sideband);
		if (sideband->type == SIDEBAND_LOST) {
			guest.losses++;
			guest.lost = *(const struct sideband_lost *)sideband;
			guest.before_lost = guest.latest_time;
			CHECK(guest.emptied || guest.lost.until >= guest.latest_time);
			guest.latest_time =
				0; /* a session's times are in order, and not those of two */
		}
	}
	ring_read_done(guest.ring);
}

static bool begin_with(int ppm, size_t ring_size, struct agent_options options)
{
	int fds[2];

	options.mappings = true;
	guest = (struct guest){ .ppm = ppm,
				.behind = 12345 * MS,
				.version = AGENT_PROTOCOL_VERSION };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    ring_create(&guest.ring, ring_size))
		return false;
	guest.fd = fds[1];
	options.fd = fds[0];
	options.ring = guest.ring;
	return !agent_start(&guest.agent, &options);
}

static bool begin(int ppm)
{
	return begin_with(ppm, 4 << 20, (struct agent_options){ 0 });
}

/* Events happen, and are told, until COUNT more of them have a place in the host's time; 20 s at
 * most. */
static void run_until_placed(uint32_t count)
{
	uint32_t wanted = guest.placed + count;
	uint64_t end = now() + 20000 * MS;

	while (guest.placed < wanted && now() < end) {
		listen_to_host();
		if (guest.open)
			tell_event();
		read_ring();
	}
	CHECK(guest.placed >= wanted);
}

static void end(struct agent_statistics *statistics)
{
	agent_stop(guest.agent, statistics);
	read_ring();
	if (guest.fd >= 0)
		close(guest.fd);
	ring_destroy(guest.ring);
	printf("%u events told, %u placed, %u of them wrongly, the largest error was %.1f ms; %llu sessions, %llu jumps, %llu lost\n",
	       guest.told, guest.placed, guest.wrong, (double)guest.largest_error / 1e6,
	       (unsigned long long)statistics->sessions,
	       (unsigned long long)statistics->clock_jumps, (unsigned long long)statistics->lost);
	CHECK_EQUAL(guest.wrong, 0);
}

static void events_are_placed_within_their_errors(int ppm)
{
	struct agent_statistics statistics;

	srand(12);
	REQUIRE(begin(ppm));
	run_until_placed(600);
	end(&statistics);
	/* Nothing is missing that was not counted, but for the time between two sessions, where
	 * nobody listens. */
	CHECK(statistics.sessions > 1 || guest.placed + statistics.lost >= guest.told);
}

TEST(agent_time, events_are_placed_within_their_errors)
{
	events_are_placed_within_their_errors(0);
}

/* An emulator's, by far more than an oscillator's. */
TEST(agent_time, clock_that_drifts_places_no_event_wrongly)
{
	events_are_placed_within_their_errors(6000);
	events_are_placed_within_their_errors(-6000);
}

/* Whose kernel finds out later that its TSC is no clock, and tells the time by another one. */
TEST(agent_time, host_that_ceases_to_trust_its_tsc_knows_the_guest_s_time_less_well)
{
	char clocks[] = "/tmp/kvmscope-clocks.XXXXXX";
	struct agent_statistics statistics;

	if (!tsc_is_reliable(TSC_CLOCKSOURCES))
		SKIP("this host's kernel does not hold its TSC for a clock");
	srand(18);
	REQUIRE(mkdtemp(clocks));
	clock_files_write(clocks, "tsc hpet", "tsc");
	REQUIRE(begin_with(0, 4 << 20,
			   (struct agent_options){ .tsc_known = true, .clocksources = clocks }));
	run_until_placed(200);
	agent_statistics(guest.agent, &statistics);
	CHECK(statistics.tsc_used);
	CHECK_EQUAL(statistics.clock_kvm_drift, 0);
	clock_files_write(clocks, "hpet", "hpet");
	run_until_placed(200); /* the first of them by an exchange that began before, maybe */
	run_until_placed(200);
	end(&statistics);
	CHECK(!statistics.tsc_used);
	CHECK_EQUAL(statistics.clock_kvm_drift, AGENT_CLOCK_KVM_DRIFT);
	CHECK(statistics.clock_error >= AGENT_CLOCK_KVM_DRIFT);
	CHECK(guest.largest_error >= AGENT_CLOCK_KVM_DRIFT);
	clock_files_remove(clocks);
}

/* Its clock and all else stood still, as when its virtual machine was stopped. */
TEST(agent_time, events_before_a_pause_are_converted_or_counted)
{
	struct agent_statistics statistics;
	uint32_t before;

	srand(13);
	REQUIRE(begin(0));
	run_until_placed(200);
	before = guest.told;
	usleep(300000);
	guest.behind += 300 * MS;
	run_until_placed(200);
	end(&statistics);
	/* More where this machine stood still for seconds. */
	CHECK(statistics.sessions >= 2);
	CHECK(guest.losses > 0);
	CHECK(guest.placed < guest.told && guest.latest > before);
}

/* Restored from an earlier state, say. */
TEST(agent_time, clock_that_runs_back_begins_a_new_session)
{
	struct agent_statistics statistics;

	srand(14);
	REQUIRE(begin(0));
	run_until_placed(200);
	guest.behind += 3000 * MS;
	run_until_placed(200);
	end(&statistics);
	CHECK(statistics.sessions >= 2);
	CHECK(guest.losses > 0);
}

/* Another agent, and a guest that was started anew meanwhile. */
TEST(agent_time, agent_of_another_version_leaves_nothing_that_the_next_one_waits_for)
{
	struct agent_statistics statistics;

	srand(16);
	REQUIRE(begin(0));
	guest.version = AGENT_PROTOCOL_VERSION + 1;
	agent_statistics(guest.agent, &statistics);
	for (uint64_t last = now() + 20000 * MS; !statistics.sessions && now() < last;) {
		listen_to_host();
		agent_statistics(guest.agent, &statistics);
	}
	CHECK_EQUAL(statistics.error, -EPROTONOSUPPORT);
	guest.behind += 30000 * MS;
	guest.version = AGENT_PROTOCOL_VERSION;
	run_until_placed(100);
	end(&statistics);
}

/* 20 s at most. */
static void wait_for_loss(uint64_t count)
{
	uint64_t last = now() + 20000 * MS;

	while (guest.lost.count != count && now() < last) {
		listen_to_host();
		read_ring();
	}
	CHECK_EQUAL(guest.lost.count, count);
}

/* What another CPU told of in that time may be so no more: what became of it may be what was lost.
 */
TEST(agent_time, loss_lies_between_the_records_that_its_ring_had_room_for)
{
	struct agent_statistics statistics;
	uint32_t before, between;

	srand(17);
	REQUIRE(begin(0));
	run_until_placed(50);
	tell_event_of(1);
	before = guest.told;
	usleep(2000);
	tell_event_of(0);
	between = guest.told;
	usleep(2000);
	tell_lost(1, 3);
	wait_for_loss(3);
	CHECK(guest.lost.head.time <= guest.time[before]);
	CHECK(guest.lost.until >= guest.time[between] + 2 * MS - guest.lost.head.time_error);
	CHECK(guest.latest >= between);
	end(&statistics);
}

/* The guest says it with the CPU's next event, whenever that is: what it told meanwhile is known to
 * be so. */
TEST(agent_time, a_loss_is_before_the_report_of_its_emptied_ring)
{
	struct agent_statistics statistics;
	uint64_t until, told_before;
	uint32_t before;

	srand(23);
	REQUIRE(begin(0));
	run_until_placed(50);
	tell_event_of(1);
	before = guest.told;
	tell_lost(1, 0);
	usleep(20000);
	tell_event_of(0);
	tell_lost(1, 3);
	wait_for_loss(3);
	CHECK(guest.latest > before);
	until = guest.lost.until;
	told_before = guest.before_lost;
	end(&statistics);
	CHECK(statistics.sessions > 1 || until < told_before);
}

/* What waits then is dropped with the guest's time that it has. */
TEST(agent_time, an_exchange_after_the_end_of_a_session_converts_nothing)
{
	struct agent_statistics statistics;
	uint64_t before;

	srand(24);
	REQUIRE(begin(0));
	guest.behind = -20000 * MS;
	run_until_placed(50);
	before = now();
	guest.breaks = 3;
	for (uint64_t last = now() + 20000 * MS; !guest.losses && now() < last;) {
		listen_to_host();
		read_ring();
	}
	CHECK(guest.losses > 0);
	CHECK(guest.lost.head.time > before - 6000 * MS);
	end(&statistics);
}

/*
 * The guest answers no more, and tells on: what came soon behind its last answer still has a time,
 * what came later has none. Not what was known before that is to be believed then.
 */
TEST(agent_time, dropped_events_at_the_end_are_counted_and_after_the_loss)
{
	struct agent_statistics statistics;

	srand(18);
	REQUIRE(begin(0));
	run_until_placed(100);
	for (int i = 0; i < 40; i++) {
		tell_event();
		usleep(10000);
	}
	close(guest.fd);
	guest.fd = -1;
	for (uint64_t last = now() + 20000 * MS; !guest.losses && now() < last;)
		read_ring();
	CHECK(guest.losses > 0);
	end(&statistics);
	CHECK(guest.losses > 0 && guest.latest < guest.told);
	CHECK(guest.lost.head.time <= guest.time[guest.latest + 1]);
	CHECK_EQUAL(guest.lost.count, guest.told - guest.latest);
	CHECK_EQUAL(statistics.sessions > 1 || statistics.lost == guest.lost.count, 1);
}

/* No event more has room. */
static bool ring_is_full(void)
{
	uint64_t head = __atomic_load_n(&guest.ring->header->data_head, __ATOMIC_ACQUIRE);

	return head - guest.ring->reader.released + ring_record_size(sizeof(struct sideband_comm)) >
	       guest.ring->size;
}

/* Events happen, and are told, but nobody reads of them; 20 s at most. */
static void run_until_full(uint32_t events)
{
	uint32_t last = guest.told + events;
	uint64_t end = now() + 20000 * MS;

	while ((guest.told < last || !ring_is_full()) && now() < end) {
		if (guest.told >= last || guest.told % 16 == 0)
			listen_to_host();
		if (guest.told < last)
			tell_event();
	}
	CHECK(ring_is_full());
}

/* Who reads it does something else, while the guest tells more than the ring has room for. */
TEST(agent_time, what_a_full_ring_has_no_room_for_waits)
{
	const uint32_t many = 4 * RING_SIZE_MIN / sizeof(struct sideband_comm);
	struct agent_statistics statistics;
	struct ring_statistics ring;

	srand(19);
	REQUIRE(begin_with(0, RING_SIZE_MIN, (struct agent_options){ 0 }));
	run_until_placed(50);
	run_until_full(many);
	run_until_placed(many);
	ring_statistics(guest.ring, &ring);
	end(&statistics);
	CHECK_EQUAL(ring.lost, 0);
	CHECK(statistics.sessions > 1 || !guest.losses);
}

/* Names of a guest that is gone are no more to be believed than those of one that goes on. */
TEST(agent_time, a_loss_waits_for_room_in_a_full_ring)
{
	const uint32_t many = 4 * RING_SIZE_MIN / sizeof(struct sideband_comm);
	struct agent_statistics statistics = { .connected = true };
	uint64_t before;

	srand(21);
	REQUIRE(begin_with(0, RING_SIZE_MIN, (struct agent_options){ 0 }));
	run_until_placed(50);
	run_until_full(many);
	close(guest.fd);
	guest.fd = -1;
	for (uint64_t last = now() + 20000 * MS; statistics.connected && now() < last;) {
		usleep(1000);
		agent_statistics(guest.agent, &statistics);
	}
	CHECK(!statistics.connected);
	before = guest.losses;
	for (uint64_t last = now() + 20000 * MS; guest.losses == before && now() < last;) {
		usleep(1000);
		read_ring();
	}
	CHECK(guest.losses > before);
	end(&statistics);
}

/*
 * No exchange is known better than within 44 ms, which is too long for a good one, and leaves room
 * for a machine that is slow itself: the best of a second is used.
 */
TEST(agent_time, the_best_exchange_is_used_if_all_are_slow)
{
	struct agent_statistics statistics;
	uint64_t since;

	srand(20);
	since = now();
	REQUIRE(begin(0));
	guest.slow = 22000;
	run_until_placed(20);
	end(&statistics);
	CHECK(statistics.imprecise >= 1000 * MS);
	CHECK(statistics.imprecise <= now() - since);
}

/*
 * Each begins a new session, which would begin with several. No more come than the host says it
 * sends: 16 at once, and ten a second.
 */
TEST(agent_time, pings_are_rare_whatever_is_answered)
{
	struct agent_statistics statistics;
	uint64_t since = now();

	srand(21);
	REQUIRE(begin(0));
	guest.runs_back = true;
	while (now() < since + 3000 * MS)
		listen_to_host();
	end(&statistics);
	CHECK(statistics.sessions > 1);
	if (guest.answers > 17 + (now() - since) / (100 * MS))
		FAIL_TEST("%u pings in %.1f s", guest.answers, (double)(now() - since) / 1e9);
}

/* Code of a file with a build id is mapped now. */
static void tell_mapping(void)
{
	struct {
		struct agent_events events;
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t start, size, offset;
		uint8_t build_id_size, reserved[3], build_id[20];
		uint32_t prot, flags;
		char name[16];
		struct agent_record_end end;
	} event = { .header = { .type = PERF_RECORD_MMAP2,
				.misc = PERF_RECORD_MISC_MMAP_BUILD_ID,
				.size = sizeof(event) - sizeof(event.events) },
		    .pid = 1,
		    .tid = 1,
		    .start = 0x400000,
		    .size = 0x1000,
		    .build_id_size = 20,
		    .build_id = { 1 },
		    .prot = PROT_READ | PROT_EXEC,
		    .name = "/bin/program",
		    .end.time = guest_time(now()) };

	say(AGENT_EVENTS, &event, sizeof(event));
}

static void want_symbols(const struct sideband_mmap *mapping)
{
	struct agent_image image = { .pid = mapping->head.pid,
				     .start = mapping->start,
				     .end = mapping->start + mapping->length,
				     .build_id_size = mapping->build_id_size,
				     .path = mapping->name };

	memcpy(image.build_id, mapping->build_id, sizeof(image.build_id));
	CHECK_EQUAL(agent_request_symbols(guest.agent, &image), 0);
}

/* No answer says what time it is in the guest, so that nothing has a place in the host's time:
 * names need none. */
TEST(agent_time, symbols_are_asked_for_before_the_time_is_known)
{
	struct agent_statistics statistics;
	struct agent_mappings taken;
	struct sideband_mmap *mapping;
	unsigned int mappings = 0;

	srand(25);
	REQUIRE(begin(0));
	guest.slow = 100000;
	for (uint64_t last = now() + 20000 * MS; !guest.asked && now() < last;) {
		listen_to_host();
		if (guest.open && !mappings++)
			tell_mapping();
		taken = agent_pop_mappings(guest.agent);
		while ((mapping = agent_mappings_pop(&taken))) {
			want_symbols(mapping);
			free(mapping);
		}
		read_ring();
	}
	CHECK_EQUAL(guest.asked, 1);
	CHECK_EQUAL(guest.placed, 0);
	end(&statistics);
	CHECK_EQUAL(statistics.clock_error, 0);
}
