/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/thread_start.h"
#include "vmm/agent/agent_state.h"

/* Retry interval while there is no connection to the guest. */
#define CONNECT_INTERVAL (1000 * NS_PER_MS)
/* Retry interval while the ring has no room for a loss. */
#define LOSS_INTERVAL 50 /* ms */
/* Bytes read from the socket before other work is done: little, because a throttled guest waits for
 * all of it to be paid, and so do its answers to pings. */
#define READ_AT_ONCE AGENT_MESSAGE_MAX
/* ns of CPU time that a record costs the thread which reads the ring. */
#define RECORD_COST 300

/* False if the peer closed the socket. */
static bool read_input(struct agent *agent)
{
	size_t taken = 0, room;
	ssize_t size = 1;

	while (size > 0 && taken < READ_AT_ONCE) {
		uint8_t *to = agent_stream_room(&agent->stream, &room);

		size = recv(agent->options.fd, to, room, MSG_DONTWAIT);
		if (size <= 0)
			break;
		taken += (size_t)size;
		agent->ping_bytes += (size_t)size;
		agent_stream_received(&agent->stream, (size_t)size);
		agent_handle_messages(agent);
	}
	ring_flush(agent->options.ring);
	return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

static void count_throttled(struct agent *agent, uint64_t wait)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.throttled += wait;
	pthread_mutex_unlock(&agent->lock);
}

/* read_input() within the guest's share of the CPU; what is not read makes the guest wait. */
static bool read_paid_input(struct agent *agent)
{
	uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), added = agent->timeline.added;
	bool open = read_input(agent);

	cpu_budget_charge(&agent->work, agent_now(),
			  clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin +
				  (agent->timeline.added - added) * RECORD_COST);
	return open;
}

/* If the guest does not read, the request times out as if it had been sent. */
static void send_table_request(struct agent *agent, uint64_t time)
{
	const struct agent_message *request;
	bool whole = true;

	if (!agent->answered ||
	    !(agent->statistics.features & (AGENT_FEATURE_TABLES | AGENT_FEATURE_KERNEL)))
		return;
	pthread_mutex_lock(&agent->lock);
	request = agent_tables_next(agent->tables, time);
	if (request)
		whole = agent_send_whole(agent, request);
	pthread_mutex_unlock(&agent->lock);
	if (!whole)
		agent_begin_session(agent, time);
}

/* A request with an empty path. */
struct short_request {
	_Alignas(8) uint8_t
		bytes[(sizeof(struct agent_message) + sizeof(struct agent_request)) / 8 * 8 + 8];
};

static const struct agent_message *make_request(struct short_request *request,
						enum agent_table_kind kind, uint32_t pid)
{
	struct agent_message *message = (struct agent_message *)request->bytes;

	*request = (struct short_request){ 0 };
	*message = (struct agent_message){ .size = sizeof(request->bytes), .type = AGENT_REQUEST };
	*(struct agent_request *)message->payload =
		(struct agent_request){ .kind = kind, .pid = pid };
	return message;
}

static void send_jit_map_requests(struct agent *agent, uint64_t time)
{
	struct short_request request;
	uint32_t pid;

	if (!agent->answered || !(agent->statistics.features & AGENT_FEATURE_JIT_MAPS))
		return;
	while ((pid = agent_jit_next(&agent->jit)))
		if (!agent_send_whole(agent, make_request(&request, AGENT_TABLE_JIT_MAP, pid))) {
			agent_begin_session(agent, time);
			return;
		}
}

static bool tasks_request_due(struct agent *agent)
{
	bool is;

	pthread_mutex_lock(&agent->lock);
	is = agent->answered && agent->tasks_requested && !agent->tasks_sent;
	agent->tasks_sent |= is;
	pthread_mutex_unlock(&agent->lock);
	return is;
}

static void send_tasks_request(struct agent *agent, uint64_t time)
{
	struct short_request request;

	if (tasks_request_due(agent) &&
	    !agent_send_whole(agent, make_request(&request, AGENT_TABLE_TASKS, 0)))
		agent_begin_session(agent, time);
}

static void note_connection(struct agent *agent, int error)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.connected = !error;
	agent->statistics.unconnected = error;
	pthread_mutex_unlock(&agent->lock);
}

/* There is no socket. */
static void connect_if_due(struct agent *agent, uint64_t time)
{
	int fd;

	if (time < agent->next_send)
		return;
	fd = agent->options.connect(agent->options.context);
	agent->next_send = time + CONNECT_INTERVAL;
	if (fd >= 0) {
		agent->options.fd = fd;
		agent_begin_session(agent, time);
	}
	note_connection(agent, fd < 0 ? fd : 0);
}

/* The connection is lost until connect() succeeds. */
static void disconnect(struct agent *agent)
{
	uint64_t time = agent_now();

	close(agent->options.fd);
	agent->options.fd = -1;
	agent_begin_session(agent, time);
	agent->next_send = time + CONNECT_INTERVAL;
	note_connection(agent, -ENOTCONN);
}

static void send_due(struct agent *agent)
{
	uint64_t time = agent_now();

	agent_timeline_emit_loss(&agent->timeline);
	if (agent->options.fd < 0) {
		if (agent->options.connect)
			connect_if_due(agent, time);
		return;
	}
	if (agent->statistics.open && time > agent->last_answer + AGENT_TIMEOUT)
		agent_begin_session(agent, time);
	send_table_request(agent, time);
	send_jit_map_requests(agent, time);
	send_tasks_request(agent, time);
	agent_hasten_ping(agent);
	if (time < agent->next_send && !agent_needs_ping(agent))
		return;
	if (!agent->statistics.open)
		agent_send_start(agent, time);
	else
		agent_ping(agent, time);
}

/* ms until something is due to be sent; -1: nothing. */
static int time_to_send(const struct agent *agent)
{
	uint64_t time = agent_now();

	if (agent->options.fd < 0 && !agent->options.connect)
		return -1;
	return agent->next_send > time ? (int)((agent->next_send - time) / NS_PER_MS) + 1 : 0;
}

/* ms; -1: no timeout. */
static int time_to_wait(const struct agent *agent)
{
	int wait = time_to_send(agent);

	return agent->timeline.loss.head.size && (wait < 0 || wait > LOSS_INTERVAL) ? LOSS_INTERVAL
										    : wait;
}

/* Waits for input, the stop or a due message. True: there is input to read. */
static bool wait_for_input(struct agent *agent, struct pollfd fds[2])
{
	uint64_t begin = agent_now(), delay = cpu_budget_wait(&agent->work, begin);
	int wait = time_to_wait(agent), pause = (int)((delay + NS_PER_MS - 1) / NS_PER_MS);
	bool ready;

	fds[0].fd = delay ? -1 : agent->options.fd; /* a negative one is not polled */
	if (delay && (wait < 0 || wait > pause))
		wait = pause;
	ready = poll(fds, 2, wait) > 0 && fds[0].revents;
	if (delay && agent->options.fd >= 0)
		count_throttled(agent, agent_now() - begin);
	return ready;
}

static void *serve(void *argument)
{
	struct agent *agent = argument;
	struct pollfd fds[] = {
		{ .events = POLLIN },
		{ .fd = agent->stop_fd, .events = POLLIN },
	};

	agent_begin_session(agent, agent_now());
	while (!(fds[1].revents & POLLIN)) {
		send_due(agent);
		if (wait_for_input(agent, fds) && !read_paid_input(agent))
			disconnect(agent);
	}
	if (agent->options.fd >= 0) {
		read_input(agent);
		agent_send(agent, AGENT_STOP, NULL, 0);
	}
	agent_count_lost(agent, agent_timeline_stop(&agent->timeline, agent->received));
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
	guest_account_release(agent->options.account, AGENT_QUEUE_MAX);
	if (agent->stop_fd >= 0)
		close(agent->stop_fd);
	if (agent->options.fd >= 0)
		close(agent->options.fd);
	pthread_mutex_destroy(&agent->lock);
	agent_tables_free(agent->tables);
	agent_mappings_free(&agent->mappings);
	agent_timeline_free(&agent->timeline);
	free(agent);
}

int agent_start(struct agent **result, const struct agent_options *options)
{
	struct agent *agent = calloc(1, sizeof(*agent));
	/* Charged in advance: without the queue nothing could be reported. */
	bool charged = guest_account_charge(options->account, AGENT_QUEUE_MAX);
	int error;

	if (agent && charged)
		agent->tables = agent_tables_new(options->account);
	if (!agent || !agent->tables) {
		free(agent);
		guest_account_release(options->account, charged ? AGENT_QUEUE_MAX : 0);
		if (options->fd >= 0)
			close(options->fd);
		return error_set(-ENOMEM, "no memory for the guest agent's thread");
	}
	agent->options = *options;
	agent->timeline.ring = options->ring;
	agent->mappings.account = options->account;
	agent->statistics.connected = options->fd >= 0;
	if (!options->clocksources)
		agent->options.clocksources = TSC_CLOCKSOURCES;
	agent->tsc_usable = options->tsc_known;
	pthread_mutex_init(&agent->lock, NULL);
	agent->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = agent->stop_fd < 0 ? -errno : thread_start(&agent->thread, "agent", serve, agent);
	if (error) {
		destroy(agent);
		return error_set(error, "cannot start the guest agent's thread: %s",
				 strerror(-error));
	}
	guest_account_set_drop(options->account, drop_tables, agent);
	*result = agent;
	return 0;
}

struct agent_mapping {
	struct agent_mapping *next;
	struct sideband_mmap *record; /* owned */
};

static bool is_code_with_build_id(const struct sideband *record)
{
	const struct sideband_mmap *mmap = (const void *)record;

	return record->type == SIDEBAND_MMAP && mmap->prot & PROT_EXEC && mmap->build_id_size;
}

/* Includes the overhead of two heap blocks. */
static size_t cost_of(const struct sideband *record)
{
	return sizeof(struct agent_mapping) + record->size + 32;
}

void agent_mappings_add(struct agent_mappings *mappings, const struct sideband *record)
{
	struct agent_mapping *mapping;

	if (!is_code_with_build_id(record) || mappings->bytes + record->size > AGENT_MAPPINGS_MAX ||
	    !guest_account_try_charge(mappings->account, cost_of(record)))
		return;
	mapping = calloc(1, sizeof(*mapping));
	if (mapping)
		mapping->record = malloc(record->size);
	if (!mapping || !mapping->record) {
		free(mapping);
		guest_account_release(mappings->account, cost_of(record));
		return;
	}
	memcpy(mapping->record, record, record->size);
	if (mappings->first)
		mappings->last->next = mapping;
	else
		mappings->first = mapping;
	mappings->last = mapping;
	mappings->bytes += record->size;
}

struct sideband_mmap *agent_mappings_pop(struct agent_mappings *mappings)
{
	struct agent_mapping *mapping = mappings->first;
	struct sideband_mmap *record;

	if (!mapping)
		return NULL;
	record = mapping->record;
	mappings->first = mapping->next;
	mappings->bytes -= record->head.size;
	guest_account_release(mappings->account, cost_of(&record->head));
	free(mapping);
	return record;
}

void agent_mappings_free(struct agent_mappings *mappings)
{
	struct sideband_mmap *record;

	while ((record = agent_mappings_pop(mappings)))
		free(record);
}

void agent_statistics(struct agent *agent, struct agent_statistics *statistics)
{
	pthread_mutex_lock(&agent->lock);
	*statistics = agent->statistics;
	agent_tables_statistics(agent->tables, &statistics->tables);
	pthread_mutex_unlock(&agent->lock);
}

int agent_request_symbols(struct agent *agent, const struct agent_image *image)
{
	int error;

	pthread_mutex_lock(&agent->lock);
	error = agent_tables_request(agent->tables, image);
	pthread_mutex_unlock(&agent->lock);
	return error;
}

struct agent_mappings agent_pop_mappings(struct agent *agent)
{
	struct agent_mappings mappings;

	pthread_mutex_lock(&agent->lock);
	mappings = agent->mappings;
	agent->mappings = (struct agent_mappings){ .account = mappings.account };
	pthread_mutex_unlock(&agent->lock);
	return mappings;
}

struct agent_image_table *agent_pop_symbols(struct agent *agent)
{
	struct agent_image_table *table;

	pthread_mutex_lock(&agent->lock);
	table = agent_tables_pop(agent->tables);
	pthread_mutex_unlock(&agent->lock);
	return table;
}

int agent_request_kernel(struct agent *agent, uint64_t modules_hash)
{
	int error = -EOPNOTSUPP;

	pthread_mutex_lock(&agent->lock);
	if (agent->statistics.open && agent->statistics.features & AGENT_FEATURE_KERNEL) {
		error = agent->kernel_delayed
				? agent_tables_request_kernel(agent->tables, modules_hash)
				: -EAGAIN;
		agent->kernel_delayed = true;
	}
	pthread_mutex_unlock(&agent->lock);
	return error;
}

struct agent_image_table *agent_pop_kernel(struct agent *agent)
{
	struct agent_image_table *table;

	pthread_mutex_lock(&agent->lock);
	table = agent_tables_pop_kernel(agent->tables);
	pthread_mutex_unlock(&agent->lock);
	return table;
}

int agent_request_tasks(struct agent *agent)
{
	int error = -EOPNOTSUPP;

	pthread_mutex_lock(&agent->lock);
	if (agent->statistics.open && agent->statistics.features & AGENT_FEATURE_TASKS) {
		agent->tasks_requested = true;
		error = 0;
	}
	pthread_mutex_unlock(&agent->lock);
	return error;
}

int agent_pop_tasks(struct agent *agent, struct reported_tasks *tasks)
{
	int error;

	pthread_mutex_lock(&agent->lock);
	*tasks = agent->tasks;
	error = agent->tasks_failed;
	agent->tasks.count = 0;
	agent->tasks_failed = 0;
	pthread_mutex_unlock(&agent->lock);
	return !error && !tasks->count ? -EAGAIN : error;
}

void agent_end(struct agent *agent, struct agent_statistics *statistics)
{
	const uint64_t one = 1;

	if (!agent->ended && write(agent->stop_fd, &one, sizeof(one)) < 0)
		abort(); /* cannot fail: the eventfd's count was 0 */
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
