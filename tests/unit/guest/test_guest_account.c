/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one guest can make the host use: a hostile agent reports everything possible, as
 * fast as it is read, to a recording host; and the account by itself.
 */
#include "vmm/guest/guest_account.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_client.h"
#include "vmm/record/collector.h"
#include "vmm/session/symbol_requests.h"

#define MIB   (1ul << 20)
#define LIMIT (8 * MIB)
/* Memory that the guest does not control: buffers of the collector and the agent, symbol images. */
#define OWN (8 * MIB)
/* Bytes that the guest reports: without a limit, several times the allowed memory would be kept. */
#define SENT (32 * MIB)
/* Bytes between two reported times: more would be lost before they are stored. */
#define UNTIMED_MAX (2 * MIB)
/* us for the host to store records, which do not get that far if its ring is full */
#define PAUSE 2000
/* bytes, uncompressed */
#define TABLE_SIZE (2 * MIB)

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

struct host {
	char directory[64], path[128];
	struct build_id_cache_location cache;
	struct guest_account account;
	struct ring *samples, *sideband;
	struct agent *agent;
	struct symbol_requests *names;
	struct collector *collector;
	struct collector_files files;
};

struct guest {
	int fd;
	struct agent_stream stream;
	uint8_t message[AGENT_MESSAGE_MAX] __attribute__((aligned(8)));
	size_t size;
	uint32_t pid;
	uint8_t table[AGENT_MESSAGE_MAX - 64];
	uLongf table_size;
	size_t sent, heap; /* bytes; the most that was in use */
	size_t timed;      /* bytes sent when the time was last reported */
	bool open;
};

static size_t heap(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static size_t resident(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (file && fscanf(file, "%*u %lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * 4096;
}

/* --- the host ----------------------------------------------------------------- */

static bool no_registers(void *context, struct guest_registers *registers)
{
	return false;
}

static bool has_room(void *context)
{
	return true;
}

static void see_mapping(void *context, const struct sideband_mmap *mapping)
{
	struct host *host = context;

	symbol_requests_add_mapping(host->names, host->agent, mapping);
}

static void turn(void *context)
{
	struct host *host = context;

	symbol_requests_update(host->names, host->agent);
	reported_kernel_free(symbol_requests_kernel(host->agent, 0));
}

static int begin_file(void *context, char *path, size_t size)
{
	struct host *host = context;

	snprintf(path, size, "%s", host->path);
	return 0;
}

static void end_file(void *context, const struct collector_file *file)
{
	(void)context;
	CHECK_EQUAL(file->error, 0);
}

static bool begin_host(struct host *host, int fd)
{
	static const struct guest_view nothing;
	struct agent_options agent = { .fd = fd, .account = &host->account, .mappings = true };
	struct collector_options options = {
		.rings = &host->samples,
		.ring_count = 1,
		.sideband_rings = &host->sideband,
		.sideband_ring_count = 1,
		.account = &host->account,
		.view = &nothing,
		.registers = no_registers,
		.mapped = see_mapping,
		.drained = turn,
		.context = host,
		.output = { .frequency = 1000, .vcpus = 1, .vmm_pid = 77 },
		.files = &host->files,
		.buildid_cache = true,
		.names = &host->cache,
	};

	*host = (struct host){ .directory = "/tmp/kvmscope-account-XXXXXX" };
	if (!mkdtemp(host->directory) || ring_create(&host->samples, RING_SIZE_MIN) ||
	    ring_create(&host->sideband, 16 * MIB))
		return false;
	snprintf(host->path, sizeof(host->path), "%s/perf.data", host->directory);
	host->cache = (struct build_id_cache_location){ host->directory, has_room, NULL };
	host->files = (struct collector_files){ begin_file, end_file, NULL, UINT64_MAX / 2, host };
	options.rings = &host->samples;
	options.sideband_rings = &host->sideband;
	guest_account_init(&host->account, LIMIT);
	agent.ring = host->sideband;
	return !symbol_requests_create(&host->names, &host->cache, MIB) &&
	       !agent_start(&host->agent, &agent) && !collector_start(&host->collector, &options);
}

static void end_host(struct host *host)
{
	char command[128];

	agent_end(host->agent, NULL);
	CHECK_EQUAL(collector_stop(host->collector, NULL), 0);
	agent_stop(host->agent, NULL);
	symbol_requests_destroy(host->names);
	ring_destroy(host->samples);
	ring_destroy(host->sideband);
	snprintf(command, sizeof(command), "rm -rf %s", host->directory);
	CHECK_EQUAL(system(command), 0); /* NOLINT(cert-env33-c): a test's own words */
}

/* --- the guest ---------------------------------------------------------------- */

static void note_heap(struct guest *guest)
{
	size_t used = heap();

	if (used > guest->heap)
		guest->heap = used;
}

/* Waits while the host's buffer is full. */
static void say(struct guest *guest, const void *bytes, size_t size)
{
	struct pollfd port = { .fd = guest->fd, .events = POLLOUT };

	for (size_t sent = 0; sent < size;) {
		ssize_t part = send(guest->fd, (const uint8_t *)bytes + sent, size - sent,
				    MSG_DONTWAIT | MSG_NOSIGNAL);

		sent += part > 0 ? (size_t)part : 0;
		if (part <= 0 && poll(&port, 1, 20000) != 1)
			return;
	}
	guest->sent += size;
}

static void *begin_message(struct guest *guest, enum agent_message_type type, size_t size)
{
	struct agent_message *message = (struct agent_message *)guest->message;

	memset(guest->message, 0, sizeof(*message) + size);
	*message = (struct agent_message){ .type = type };
	guest->size = sizeof(*message) + size;
	return message->payload;
}

static void end_message(struct guest *guest)
{
	struct agent_message *message = (struct agent_message *)guest->message;

	guest->size = (guest->size + 7) / 8 * 8;
	message->size = (uint32_t)guest->size;
	say(guest, message, message->size);
}

/* A perf record of process guest->pid with PAYLOAD, then NAME. */
static void add_record(struct guest *guest, uint32_t type, uint16_t misc, const void *payload,
		       size_t size, const char *name)
{
	size_t length = (strlen(name) + 8) / 8 * 8;
	struct perf_event_header header = { type, misc,
					    (uint16_t)(sizeof(header) + size + length +
						       sizeof(struct agent_record_end)) };
	struct agent_record_end end = { guest->pid, guest->pid, now() };
	uint8_t *to = guest->message + guest->size;

	memset(to, 0, header.size);
	memcpy(to, &header, sizeof(header));
	memcpy(to + sizeof(header), payload, size);
	memcpy(to + sizeof(header) + size, name, strlen(name));
	memcpy(to + sizeof(header) + size + length, &end, sizeof(end));
	guest->size += header.size;
}

static void add_mapping(struct guest *guest, uint32_t number, const char *name)
{
	struct {
		uint32_t pid, tid;
		uint64_t start, size, offset;
		uint8_t build_id_size, reserved[3], build_id[20];
		uint32_t prot, flags;
	} mmap = { .pid = guest->pid,
		   .tid = guest->pid,
		   .start = 0x10000000ull + 0x100000ull * number,
		   .size = 0x10000,
		   .build_id_size = *name == '/' ? 20 : 0,
		   .prot = PROT_READ | PROT_EXEC };

	memcpy(mmap.build_id, &guest->pid, sizeof(guest->pid));
	mmap.build_id[4] = (uint8_t)number;
	mmap.build_id[19] = 1;
	add_record(guest, PERF_RECORD_MMAP2, *name == '/' ? PERF_RECORD_MISC_MMAP_BUILD_ID : 0,
		   &mmap, sizeof(mmap), name);
}

/* Each has its own program, libraries and cgroup, and memory for a JIT. */
static void add_process(struct guest *guest)
{
	const struct {
		uint32_t pid, parent_pid, tid, parent_tid;
		uint64_t time;
	} fork = { ++guest->pid, 1, guest->pid, 1, now() };
	const struct {
		uint32_t pid, tid;
	} comm = { guest->pid, guest->pid };
	const uint64_t cgroup = guest->pid;
	char name[600];

	add_record(guest, PERF_RECORD_FORK, 0, &fork, sizeof(fork) - 8, "");
	add_record(guest, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, &comm, sizeof(comm),
		   "flood");
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "/%0*u-%u", 250, i, guest->pid);
		add_mapping(guest, i, name);
	}
	add_mapping(guest, 9, "//anon");
	snprintf(name, sizeof(name), "/%0*u", 500, guest->pid);
	add_record(guest, PERF_RECORD_CGROUP, 0, &cgroup, sizeof(cgroup), name);
}

static void flood_with_processes(struct guest *guest)
{
	begin_message(guest, AGENT_EVENTS, sizeof(struct agent_events));
	while (guest->size < AGENT_MESSAGE_MAX - 8192)
		add_process(guest);
	end_message(guest);
}

static void flood_with_functions(struct guest *guest, uint32_t pid, bool first)
{
	struct agent_jit_map *map = begin_message(guest, AGENT_JIT_MAP, sizeof(*map));
	char *lines = map->lines;

	for (uint32_t i = 0; i < 200; i++)
		lines += sprintf(lines, "%llx 10 function-%u\n",
				 0x10900000ull + (guest->sent + i) * 16, i);
	*map = (struct agent_jit_map){ .time = now(),
				       .pid = pid,
				       .flags = first ? AGENT_JIT_MAP_BEGIN : 0,
				       .size = (uint32_t)(lines - map->lines) };
	guest->size += map->size;
	end_message(guest);
}

/* A few KiB that expand to megabytes of kallsyms lines without symbols. */
static void answer_ask(struct guest *guest, const struct agent_request *ask)
{
	struct agent_table *table;

	if (ask->kind == AGENT_TABLE_JIT_MAP) {
		flood_with_functions(guest, ask->pid, true);
		return;
	}
	table = begin_message(guest, AGENT_TABLE, sizeof(*table) + guest->table_size);
	*table = (struct agent_table){ .request = ask->request,
				       .flags = AGENT_TABLE_END,
				       .size = (uint32_t)guest->table_size };
	memcpy(table->data, guest->table, guest->table_size);
	end_message(guest);
}

static void answer_ping(struct guest *guest, const struct agent_ping *ping)
{
	struct agent_pong *pong = begin_message(guest, AGENT_PONG, sizeof(*pong));
	struct agent_round *round;

	*pong = (struct agent_pong){ .host_time = ping->host_time, .guest_time = now() };
	pong->received = pong->guest_time;
	end_message(guest);
	guest->timed = guest->sent;
	round = begin_message(guest, AGENT_ROUND, sizeof(*round));
	round->guest_time = now() - 1000000;
	end_message(guest);
}

static void answer_start(struct guest *guest, const struct agent_start *start)
{
	struct agent_hello *hello = begin_message(guest, AGENT_HELLO, sizeof(*hello));

	*hello = (struct agent_hello){ .magic = AGENT_MAGIC,
				       .session = start->session,
				       .version = AGENT_PROTOCOL_VERSION,
				       .features = 0x7f & ~(uint32_t)AGENT_FEATURE_CONNECTOR,
				       .guest_time = now() };
	guest->open = true;
	end_message(guest);
}

static void listen_to_host(struct guest *guest)
{
	const struct agent_message *message;
	size_t room;
	uint8_t *to = agent_stream_room(&guest->stream, &room);
	ssize_t size = recv(guest->fd, to, room, MSG_DONTWAIT);

	agent_stream_received(&guest->stream, size > 0 ? (size_t)size : 0);
	while (agent_stream_next(&guest->stream, AGENT_START, &message) > 0)
		if (message->type == AGENT_START)
			answer_start(guest, (const void *)message->payload);
		else if (message->type == AGENT_PING)
			answer_ping(guest, (const void *)message->payload);
		else if (message->type == AGENT_REQUEST)
			answer_ask(guest, (const void *)message->payload);
}

static void make_table(struct guest *guest)
{
	static const char line[] = "ffffffff81000000 T a_function_of_the_kernel_s\n";
	uint8_t *plain = malloc(TABLE_SIZE);

	REQUIRE(plain != NULL);
	memset(plain, 0, sizeof(struct agent_kernel));
	for (size_t i = sizeof(struct agent_kernel); i < TABLE_SIZE; i++)
		plain[i] = (uint8_t)line[i % (sizeof(line) - 1)];
	guest->table_size = sizeof(guest->table);
	CHECK_EQUAL(compress(guest->table, &guest->table_size, plain, TABLE_SIZE), Z_OK);
	free(plain);
}

static void flood(struct guest *guest)
{
	for (uint32_t i = 0; guest->sent < SENT; i++) {
		listen_to_host(guest);
		if (!guest->open || guest->sent > guest->timed + UNTIMED_MAX) {
			usleep(1000);
			continue;
		}
		flood_with_processes(guest);
		flood_with_functions(guest, guest->pid - i % 64, i % 2);
		note_heap(guest);
		usleep(PAUSE);
	}
}

/* Tables arrive, are removed and refused, as are processes with their names, mappings and cgroups,
 * and functions of JITs. */
TEST(guest_account, hostile_agent_fills_no_more_than_its_limit)
{
	static struct host host;
	static struct guest guest;
	struct agent_statistics statistics;
	struct losses losses;
	struct collector_statistics counts;
	size_t before, resident_before;
	int fds[2];

	guest = (struct guest){ .pid = 1 };
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	guest.fd = fds[1];
	make_table(&guest);
	REQUIRE(begin_host(&host, fds[0]));
	before = heap();
	resident_before = resident();
	flood(&guest);
	agent_statistics(host.agent, &statistics);
	collector_statistics(host.collector, &counts);
	losses = counts.losses;
	printf("%zu MiB sent: at most %.1f MiB more of heap, %.1f MiB more resident, %.1f MiB of the account; "
	       "%llu sessions, %llu records, %llu lost, %llu refused, %llu missed, %llu tables\n",
	       guest.sent / MIB,
	       (double)(guest.heap > before ? guest.heap - before : 0) / (double)MIB,
	       ((double)resident() - (double)resident_before) / (double)MIB,
	       (double)host.account.used / (double)MIB, (unsigned long long)statistics.sessions,
	       (unsigned long long)statistics.records, (unsigned long long)statistics.lost,
	       (unsigned long long)losses.counts[LOSS_SIDEBAND_INVALID],
	       (unsigned long long)losses.counts[LOSS_SIDEBAND_DROPPED],
	       (unsigned long long)statistics.tables.complete);
	CHECK(host.account.used <= LIMIT);
	CHECK(guest.heap <= before + LIMIT + OWN);
	/* Something was recorded. */
	CHECK(statistics.records > 10000);
	CHECK(losses.counts[LOSS_SIDEBAND_INVALID] + losses.counts[LOSS_SIDEBAND_DROPPED] > 0);
	end_host(&host);
	CHECK_EQUAL(host.account.used, 0);
	close(guest.fd);
}

/* --- the account by itself ---------------------------------------------------- */

struct droppable {
	struct guest_account *account;
	size_t bytes;
	unsigned int calls;
};

static void drop(void *context, size_t size)
{
	struct droppable *droppable = context;
	size_t part = size < droppable->bytes ? size : droppable->bytes;

	droppable->calls++;
	droppable->bytes -= part;
	guest_account_release(droppable->account, part);
}

TEST(guest_account, drops_tables_before_it_refuses)
{
	struct guest_account account;
	struct droppable droppable = { &account, 600, 0 };

	guest_account_init(&account, 1000);
	CHECK(guest_account_charge(&account, 600));
	CHECK(!guest_account_charge(&account, 500));
	guest_account_set_drop(&account, drop, &droppable);
	CHECK(!guest_account_try_charge(&account, 500));
	CHECK(guest_account_charge(&account, 500));
	CHECK_EQUAL(droppable.bytes, 100);
	CHECK(!guest_account_charge(&account, 1001));
	CHECK_EQUAL(droppable.bytes, 0);
	CHECK(guest_account_charge(&account, 500));
	CHECK(!guest_account_charge(&account, 1));
	CHECK_EQUAL(droppable.calls, 3);
	CHECK_EQUAL(account.used, 1000);
}

TEST(guest_account, memory_is_zeroed_and_grows_within_the_limit)
{
	struct guest_account account;
	uint32_t *items, *larger;

	guest_account_init(&account, 1000);
	CHECK(!guest_account_new(&account, 1000));
	CHECK_EQUAL(account.used, 0);
	items = guest_account_new(&account, 100 * sizeof(*items));
	REQUIRE(items != NULL);
	CHECK_EQUAL(items[0] | items[99], 0);
	items[99] = 7;
	CHECK(!guest_account_resize(&account, items, sizeof(*items), 100, 300));
	larger = guest_account_resize(&account, items, sizeof(*items), 100, 200);
	REQUIRE(larger != NULL);
	CHECK_EQUAL(larger[99], 7);
	CHECK(account.used >= 800 && account.used <= 1000);
	guest_account_free(&account, larger, 200 * sizeof(*larger));
	guest_account_free(&account, NULL, 5);
	CHECK_EQUAL(account.used, 0);
}
