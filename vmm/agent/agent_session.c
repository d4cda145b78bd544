/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "shared/clock_ns.h"

/* The agent may start, or restart, at any time. */
#define START_INTERVAL (500 * NS_PER_MS)

uint64_t agent_now(void)
{
	return tsc_mark_now().time;
}

/* A full socket accepts nothing; the caller retries. */
bool agent_send(struct agent *agent, enum agent_message_type type, const void *payload, size_t size)
{
	struct {
		struct agent_message header;
		uint8_t payload[sizeof(struct agent_start)];
	} __attribute__((aligned(8))) message = {
		.header = { .size = (uint32_t)(sizeof(message.header) + size), .type = type },
	};

	if (size)
		memcpy(message.payload, payload, size);
	return send(agent->options.fd, &message, message.header.size,
		    MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)message.header.size;
}

/* A partly sent message would be parsed as the start of the next one. */
bool agent_send_whole(struct agent *agent, const struct agent_message *message)
{
	ssize_t sent = send(agent->options.fd, message, message->size, MSG_DONTWAIT | MSG_NOSIGNAL);

	return sent < 0 || sent == (ssize_t)message->size;
}

void agent_send_start(struct agent *agent, uint64_t time)
{
	struct agent_start start = { .magic = AGENT_MAGIC,
				     .session = agent->session,
				     .version = AGENT_PROTOCOL_VERSION };

	agent_send(agent, AGENT_START, &start, sizeof(start));
	agent->next_send = time + START_INTERVAL;
}

void agent_count_rejected(struct agent *agent)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.refused++;
	pthread_mutex_unlock(&agent->lock);
}

void agent_count_lost(struct agent *agent, uint64_t count)
{
	agent->session_lost += count;
	pthread_mutex_lock(&agent->lock);
	agent->statistics.lost += count;
	pthread_mutex_unlock(&agent->lock);
}

/* Each session has a new number, which tells its messages from older ones. */
void agent_begin_session(struct agent *agent, uint64_t time)
{
	THREAD_CHECK(&agent->on_thread);
	if (agent->statistics.open)
		agent_count_lost(agent, agent_timeline_end(&agent->timeline, agent->received));
	agent_timeline_begin(&agent->timeline);
	memset(agent->written, 0, sizeof(agent->written));
	memset(agent->emptied, 0, sizeof(agent->emptied));
	agent->session = time;
	agent->pings = 0;
	agent->ping_open = agent->answered = false;
	agent->answer_took = 0;
	agent->session_lost = 0;
	agent->next_send = time;
	agent->imprecise = (struct agent_clock_exchange){ 0 };
	agent_jit_reset(&agent->jit);
	agent_stream_reset(&agent->stream);
	pthread_mutex_lock(&agent->lock);
	agent->statistics.open = false;
	agent->kernel_delayed = agent->tasks_requested = agent->tasks_sent = false;
	agent_tables_session_ended(agent->tables);
	pthread_mutex_unlock(&agent->lock);
}

void agent_report_round(struct agent *agent, uint64_t guest_time)
{
	struct sideband record = { .size = sizeof(record), .type = SIDEBAND_ROUND };

	agent_timeline_add(&agent->timeline, &record, guest_time);
}

void agent_report_jit_maps_incomplete(struct agent *agent, uint64_t guest_time)
{
	struct sideband_jit_map record = {
		.head = { .size = sizeof(record),
			  .type = SIDEBAND_JIT_MAP,
			  .flags = SIDEBAND_JIT_INCOMPLETE },
	};

	agent_timeline_add(&agent->timeline, &record.head, guest_time);
}

/* The release is printed: remove control characters. */
static void copy_release(char *to, const char *from)
{
	memcpy(to, from, AGENT_RELEASE_MAX);
	to[AGENT_RELEASE_MAX - 1] = '\0';
	for (; *to; to++)
		if (*to < ' ' || *to > '~')
			*to = '?';
}

void agent_handle_hello(struct agent *agent, const struct agent_hello *hello, uint64_t time)
{
	struct agent_statistics *statistics = &agent->statistics;

	if (statistics->open || hello->magic != AGENT_MAGIC || hello->session != agent->session)
		return; /* of an earlier session */
	agent->last_answer = agent->last_time = agent->next_send = time;
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
		return; /* another protocol version: no clock exchange will follow */
	agent_report_jit_maps_incomplete(agent, hello->guest_time);
	/* From now on the resolver waits for this source's rounds. */
	agent_report_round(agent, hello->guest_time);
}
