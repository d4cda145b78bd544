/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of guest times. The test simulates an agent whose clock differs from the host's and
 * whose messages are delayed. It knows the host time of each event that it reports.
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
#include "shared/clock_ns.h"
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
	/* Its clock is PPM fast and LAG ns later than the host's. */
	int ppm;
	uint64_t lag;
	uint32_t version; /* in its AGENT_HELLO */
	useconds_t slow;  /* us: delay of each message in each direction */
	bool open;
	/* Number of pongs before it stops reporting; the last one follows an event whose time
	 * cannot be converted. 0: it never stops. */
	unsigned int breaks;
	unsigned int answers; /* to pings */
	bool runs_back;       /* with each pong */
	struct {
		bool open; /* messages are collected here and sent together */
		size_t size;
		uint8_t bytes[1024];
	} parcel;
	unsigned int requests;     /* AGENT_REQUESTs received */
	uint32_t reported;         /* number of events; each has its own number as pid */
	uint64_t time[EVENTS_MAX]; /* of each event, host clock */
	/* Read from the ring. */
	uint32_t converted, wrong, latest;
	uint64_t latest_time, largest_error, losses;
	struct sideband_lost lost; /* the latest, */
	uint64_t before_lost;      /* and the time of the record before it */
	bool emptied;              /* the guest reported an emptied ring */
};

static struct guest guest;

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

static uint64_t guest_time(uint64_t host)
{
	return host - guest.lag + (uint64_t)((__int128)host * guest.ppm / 1000000);
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

/* Reports an event on CPU: a COMM record. */
static void report_event_on(uint32_t cpu)
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

	if (guest.reported + 1 == EVENTS_MAX)
		return;
	event.pid = event.tid = ++guest.reported;
	guest.time[guest.reported] = now();
	event.end.time = guest_time(guest.time[guest.reported]);
	say(AGENT_EVENTS, &event, sizeof(event));
}

static void report_event(void)
{
	report_event_on(0);
}

/* Reports COUNT lost records of CPU; 0: an emptied ring. */
static void report_lost(uint32_t cpu, uint64_t count)
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

static void run_back_after_a_loss(void)
{
	report_lost(1, 1);
	guest.lag += 3000 * MS;
	report_event();
	guest.lag -= 3000 * MS;
}

static void answer_ping(const struct agent_ping *ping)
{
	struct agent_pong pong = { .host_time = ping->host_time };
	struct agent_round round = { 0 };

	rest();
	guest.lag += guest.runs_back ? 3000 * MS : 0;
	pong.received = guest_time(now());
	if (guest.breaks == 1) {
		guest.parcel.open = true;
		run_back_after_a_loss();
	}
	rest();
	pong.tsc_before = tsc_mark_now().tsc;
	pong.guest_time = guest_time(now());
	pong.tsc_after = tsc_mark_now().tsc;
	rest();
	/* Every other pong is an older agent's. */
	say(AGENT_PONG, &pong, guest.answers++ % 2 ? sizeof(pong) : AGENT_PONG_MIN);
	if (guest.parcel.open)
		send_parcel();
	if (guest.breaks) {
		guest.breaks--;
		return;
	}
	report_event();
	round.guest_time = guest_time(now()) - MS;
	say(AGENT_ROUND, &round, sizeof(round));
}

static void answer(const struct agent_message *message)
{
	if (message->type == AGENT_START)
		answer_start((const struct agent_start *)message->payload);
	if (message->type == AGENT_PING && guest.open)
		answer_ping((const struct agent_ping *)message->payload);
	guest.requests += message->type == AGENT_REQUEST;
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
	guest.converted++;
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
			guest.latest_time = 0; /* times are in order within a session only */
		}
	}
	ring_read_done(guest.ring);
}

static bool begin_with(int ppm, size_t ring_size, struct agent_options options)
{
	int fds[2];

	options.mappings = true;
	guest = (struct guest){ .ppm = ppm, .lag = 12345 * MS, .version = AGENT_PROTOCOL_VERSION };
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

/* Reports events until COUNT more of them were converted, for at most 20 s. */
static void run_until_converted(uint32_t count)
{
	uint32_t wanted = guest.converted + count;
	uint64_t end = now() + 20000 * MS;

	while (guest.converted < wanted && now() < end) {
		listen_to_host();
		if (guest.open)
			report_event();
		read_ring();
	}
	CHECK(guest.converted >= wanted);
}

static void end(struct agent_statistics *statistics)
{
	agent_stop(guest.agent, statistics);
	read_ring();
	if (guest.fd >= 0)
		close(guest.fd);
	ring_destroy(guest.ring);
	printf("%u events reported, %u converted, %u of them wrongly, the largest error was %.1f ms; %llu sessions, %llu jumps, %llu lost\n",
	       guest.reported, guest.converted, guest.wrong, (double)guest.largest_error / 1e6,
	       (unsigned long long)statistics->sessions,
	       (unsigned long long)statistics->clock_jumps, (unsigned long long)statistics->lost);
	CHECK_EQUAL(guest.wrong, 0);
}

static void times_are_within_their_errors(int ppm)
{
	struct agent_statistics statistics;

	srand(12);
	REQUIRE(begin(ppm));
	run_until_converted(600);
	end(&statistics);
	/* Every missing event was counted, except between two sessions. */
	CHECK(statistics.sessions > 1 || guest.converted + statistics.lost >= guest.reported);
}

TEST(agent_time, times_are_within_their_errors)
{
	times_are_within_their_errors(0);
}

/* The drift of an emulator is much larger than an oscillator's. */
TEST(agent_time, drifting_clock_stays_within_the_error)
{
	times_are_within_their_errors(6000);
	times_are_within_their_errors(-6000);
}

/* The host's kernel detects later that its TSC is unstable and uses another clocksource. */
TEST(agent_time, error_grows_if_the_host_stops_using_its_tsc)
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
	run_until_converted(200);
	agent_statistics(guest.agent, &statistics);
	CHECK(statistics.tsc_used);
	CHECK_EQUAL(statistics.clock_kvm_drift, 0);
	clock_files_write(clocks, "hpet", "hpet");
	run_until_converted(200); /* the first one may use an exchange that began before */
	run_until_converted(200);
	end(&statistics);
	CHECK(!statistics.tsc_used);
	CHECK_EQUAL(statistics.clock_kvm_drift, AGENT_CLOCK_KVM_DRIFT);
	CHECK(statistics.clock_error >= AGENT_CLOCK_KVM_DRIFT);
	CHECK(guest.largest_error >= AGENT_CLOCK_KVM_DRIFT);
	clock_files_remove(clocks);
}

/* Clock and guest stood still, as when the VM is stopped. */
TEST(agent_time, events_before_a_pause_are_converted_or_counted)
{
	struct agent_statistics statistics;
	uint32_t before;

	srand(13);
	REQUIRE(begin(0));
	run_until_converted(200);
	before = guest.reported;
	usleep(300000);
	guest.lag += 300 * MS;
	run_until_converted(200);
	end(&statistics);
	/* More if this machine stood still for seconds. */
	CHECK(statistics.sessions >= 2);
	CHECK(guest.losses > 0);
	CHECK(guest.converted < guest.reported && guest.latest > before);
}

/* For example, the VM was restored from an earlier state. */
TEST(agent_time, backward_clock_starts_a_new_session)
{
	struct agent_statistics statistics;

	srand(14);
	REQUIRE(begin(0));
	run_until_converted(200);
	guest.lag += 3000 * MS;
	run_until_converted(200);
	end(&statistics);
	CHECK(statistics.sessions >= 2);
	CHECK(guest.losses > 0);
}

/* The guest was restarted meanwhile, with another agent. */
TEST(agent_time, agent_of_another_version_does_not_affect_the_next)
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
	guest.lag += 30000 * MS;
	guest.version = AGENT_PROTOCOL_VERSION;
	run_until_converted(100);
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

/* Reports of other CPUs in that time are uncertain: a lost record may have changed them. */
TEST(agent_time, loss_is_between_the_records_that_fitted)
{
	struct agent_statistics statistics;
	uint32_t before, between;

	srand(17);
	REQUIRE(begin(0));
	run_until_converted(50);
	report_event_on(1);
	before = guest.reported;
	usleep(2000);
	report_event_on(0);
	between = guest.reported;
	usleep(2000);
	report_lost(1, 3);
	wait_for_loss(3);
	CHECK(guest.lost.head.time <= guest.time[before]);
	CHECK(guest.lost.until >= guest.time[between] + 2 * MS - guest.lost.head.time_error);
	CHECK(guest.latest >= between);
	end(&statistics);
}

/* The kernel reports the loss with the CPU's next event, which may be much later. Reports between
 * the emptied ring and that event are certain. */
TEST(agent_time, a_loss_is_before_the_report_of_its_emptied_ring)
{
	struct agent_statistics statistics;
	uint64_t until, reported_before;
	uint32_t before;

	srand(23);
	REQUIRE(begin(0));
	run_until_converted(50);
	report_event_on(1);
	before = guest.reported;
	report_lost(1, 0);
	usleep(20000);
	report_event_on(0);
	report_lost(1, 3);
	wait_for_loss(3);
	CHECK(guest.latest > before);
	until = guest.lost.until;
	reported_before = guest.before_lost;
	end(&statistics);
	CHECK(statistics.sessions > 1 || until < reported_before);
}

/* Waiting records are dropped with their guest times. */
TEST(agent_time, an_exchange_after_the_end_of_a_session_converts_nothing)
{
	struct agent_statistics statistics;
	uint64_t before;

	srand(24);
	REQUIRE(begin(0));
	guest.lag = -20000 * MS;
	run_until_converted(50);
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
 * The guest stops answering and continues to report. Events soon after its last answer still have a
 * time, later ones have none. Everything reported before is uncertain then.
 */
TEST(agent_time, dropped_events_at_the_end_are_counted_and_after_the_loss)
{
	struct agent_statistics statistics;

	srand(18);
	REQUIRE(begin(0));
	run_until_converted(100);
	for (int i = 0; i < 40; i++) {
		report_event();
		usleep(10000);
	}
	close(guest.fd);
	guest.fd = -1;
	for (uint64_t last = now() + 20000 * MS; !guest.losses && now() < last;)
		read_ring();
	CHECK(guest.losses > 0);
	end(&statistics);
	CHECK(guest.losses > 0 && guest.latest < guest.reported);
	CHECK(guest.lost.head.time <= guest.time[guest.latest + 1]);
	CHECK_EQUAL(guest.lost.count, guest.reported - guest.latest);
	CHECK_EQUAL(statistics.sessions > 1 || statistics.lost == guest.lost.count, 1);
}

/* There is no room for another event. */
static bool ring_is_full(void)
{
	uint64_t head = __atomic_load_n(&guest.ring->header->data_head, __ATOMIC_ACQUIRE);

	return head - guest.ring->reader.released + ring_record_size(sizeof(struct sideband_comm)) >
	       guest.ring->size;
}

/* Reports events that are not read, for at most 20 s. */
static void run_until_full(uint32_t events)
{
	uint32_t last = guest.reported + events;
	uint64_t end = now() + 20000 * MS;

	while ((guest.reported < last || !ring_is_full()) && now() < end) {
		if (guest.reported >= last || guest.reported % 16 == 0)
			listen_to_host();
		if (guest.reported < last)
			report_event();
	}
	CHECK(ring_is_full());
}

/* The guest reports more than fits into the ring while its reader is busy. */
TEST(agent_time, records_wait_for_room_in_a_full_ring)
{
	const uint32_t many = 4 * RING_SIZE_MIN / sizeof(struct sideband_comm);
	struct agent_statistics statistics;
	struct ring_statistics ring;

	srand(19);
	REQUIRE(begin_with(0, RING_SIZE_MIN, (struct agent_options){ 0 }));
	run_until_converted(50);
	run_until_full(many);
	run_until_converted(many);
	ring_statistics(guest.ring, &ring);
	end(&statistics);
	CHECK_EQUAL(ring.lost, 0);
	CHECK(statistics.sessions > 1 || !guest.losses);
}

/* A loss makes reports uncertain even if the guest has ended. */
TEST(agent_time, a_loss_waits_for_room_in_a_full_ring)
{
	const uint32_t many = 4 * RING_SIZE_MIN / sizeof(struct sideband_comm);
	struct agent_statistics statistics = { .connected = true };
	uint64_t before;

	srand(21);
	REQUIRE(begin_with(0, RING_SIZE_MIN, (struct agent_options){ 0 }));
	run_until_converted(50);
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
 * Each exchange takes at least 44 ms, which is imprecise and leaves room for a slow test machine:
 * the best one of a second is used. That room needs a host whose clock is the TSC.
 */
TEST(agent_time, the_best_exchange_is_used_if_all_are_slow)
{
	char clocks[] = "/tmp/kvmscope-clocks.XXXXXX";
	struct agent_statistics statistics;
	uint64_t since;

	srand(20);
	REQUIRE(mkdtemp(clocks));
	clock_files_write(clocks, "tsc", "tsc");
	since = now();
	REQUIRE(begin_with(0, 4 << 20, (struct agent_options){ .clocksources = clocks }));
	guest.slow = 22000;
	run_until_converted(20);
	end(&statistics);
	CHECK(statistics.imprecise >= 1000 * MS);
	CHECK(statistics.imprecise <= now() - since);
	clock_files_remove(clocks);
}

/*
 * Each pong causes a new session, which begins with several pings. The rate limit holds: a burst of
 * 16, then ten per second.
 */
TEST(agent_time, pings_are_limited_whatever_is_answered)
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

/* Reports a code mapping with a build id. */
static void report_mapping(void)
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

/* Without a clock exchange no time can be converted, but symbols can be requested. */
TEST(agent_time, symbols_are_requested_before_the_time_is_known)
{
	struct agent_statistics statistics;
	struct agent_mappings taken;
	struct sideband_mmap *mapping;
	unsigned int mappings = 0;

	srand(25);
	REQUIRE(begin(0));
	guest.slow = 100000;
	for (uint64_t last = now() + 20000 * MS; !guest.requests && now() < last;) {
		listen_to_host();
		if (guest.open && !mappings++)
			report_mapping();
		taken = agent_pop_mappings(guest.agent);
		while ((mapping = agent_mappings_pop(&taken))) {
			want_symbols(mapping);
			free(mapping);
		}
		read_ring();
	}
	CHECK_EQUAL(guest.requests, 1);
	CHECK_EQUAL(guest.converted, 0);
	end(&statistics);
	CHECK_EQUAL(statistics.clock_error, 0);
}
