/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/clock_ns.h"
#include "vmm/agent/agent_records.h"
#include "vmm/agent/agent_state.h"

/* A round follows all earlier events, except those that a CPU is writing at that moment. An event
 * much older than the last round shows that the guest's clock ran backwards.
 */
#define RAN_BACK (1000 * NS_PER_MS)

/* COUNT events between SINCE and UNTIL are lost; 0: an unknown number. */
static void report_lost(struct agent *agent, uint64_t count, uint64_t since, uint64_t until)
{
	struct sideband_lost lost = {
		.head = { .size = sizeof(lost), .type = SIDEBAND_LOST, .time = since },
		.count = count
	};

	agent_timeline_add(&agent->timeline, &lost.head, until > since ? until : since);
	agent_count_lost(agent, count);
}

/* A ring becomes full right after its latest record. The kernel reports that with the next record
 * that has room, which may be much later. If the agent has reported an emptied ring just before,
 * the loss happened before that.
 */
static void handle_lost(struct agent *agent, uint32_t cpu, const struct agent_record *record)
{
	const struct sideband_lost *lost = (const void *)&record->sideband;
	uint64_t since =
		cpu < AGENT_CPUS_MAX && agent->written[cpu] ? agent->written[cpu] : agent->round;
	bool answered = cpu < AGENT_CPUS_MAX && agent->emptied[cpu] && lost->count;

	report_lost(agent, lost->count, since, answered ? since : record->guest_time);
}

static void note_written(struct agent *agent, uint32_t cpu, const struct agent_record *record)
{
	const struct sideband_lost *lost = (const void *)&record->sideband;

	if (cpu >= AGENT_CPUS_MAX)
		return;
	agent->written[cpu] = record->guest_time;
	agent->emptied[cpu] =
		record->sideband.head.size && lost->head.type == SIDEBAND_LOST && !lost->count;
}

static void note_mapping(struct agent *agent, const struct sideband *mmap)
{
	if (!agent->options.mappings)
		return;
	pthread_mutex_lock(&agent->lock);
	agent_mappings_add(&agent->mappings, mmap);
	pthread_mutex_unlock(&agent->lock);
}

static void handle_record(struct agent *agent, uint32_t cpu, struct agent_record *record)
{
	struct sideband *sideband = &record->sideband.head;

	if (sideband->type == SIDEBAND_LOST)
		handle_lost(agent, cpu, record);
	else
		agent_timeline_add(&agent->timeline, sideband, record->guest_time);
	/* A snapshot's records may be old. */
	agent->timeline.broken |= cpu != AGENT_CPU_SNAPSHOT && record->guest_time < agent->round &&
				  agent->round - record->guest_time > RAN_BACK;
	agent->has_events = true;
	agent_jit_observe(&agent->jit, sideband, record->guest_time);
	if (sideband->type == SIDEBAND_MMAP)
		note_mapping(agent, sideband);
}

static void handle_events(struct agent *agent, const struct agent_events *events, size_t bytes)
{
	struct span records = span_of(events->records, bytes);
	struct agent_record record;
	uint64_t taken = 0;

	while (records.size) {
		int size = agent_record_decode(records, &record);

		if (size < 0) {
			agent_count_rejected(agent);
			break;
		}
		if (record.sideband.head.size) {
			handle_record(agent, events->cpu, &record);
			taken++;
		}
		note_written(agent, events->cpu, &record);
		records = span_of(records.data + size, records.size - (size_t)size);
	}
	pthread_mutex_lock(&agent->lock);
	agent->statistics.records += taken;
	pthread_mutex_unlock(&agent->lock);
}

static void handle_round(struct agent *agent, const struct agent_round *round)
{
	/* Losses without a LOST record: CPUs that came online late. */
	if (round->lost > agent->session_lost)
		report_lost(agent, round->lost - agent->session_lost, agent->round,
			    round->guest_time);
	agent->round = round->guest_time;
	agent_report_round(agent, round->guest_time);
	pthread_mutex_lock(&agent->lock);
	agent->statistics.unstable = round->unstable;
	agent->statistics.cut = round->cut;
	agent->statistics.snapshot_done = round->flags & AGENT_ROUND_SNAPSHOT_DONE;
	pthread_mutex_unlock(&agent->lock);
}

static void handle_table(struct agent *agent, const struct agent_message *message, uint64_t time)
{
	bool taken;

	pthread_mutex_lock(&agent->lock);
	taken = agent_tables_receive(agent->tables, message, time);
	pthread_mutex_unlock(&agent->lock);
	if (!taken)
		agent_count_rejected(agent);
}

static void add_jit_record(void *context, struct sideband *record)
{
	agent_timeline_add(context, record, record->time);
}

static void handle_jit_map(struct agent *agent, const struct agent_message *message)
{
	if (agent_jit_decode(message, add_jit_record, &agent->timeline))
		return;
	agent_report_jit_maps_incomplete(agent, agent->round);
	agent_count_rejected(agent);
}

/* One answer per request, because searching for the tasks takes time. -EBUSY is temporary. */
static void handle_tasks(struct agent *agent, const struct agent_message *message)
{
	struct reported_tasks tasks;
	int error =
		reported_tasks_read(&tasks, span_of(message->payload, agent_payload_size(message)));
	bool asked;

	pthread_mutex_lock(&agent->lock);
	asked = agent->tasks_sent;
	if (asked) {
		agent->tasks_requested = agent->tasks_sent = false;
		agent->tasks_failed = error;
		agent->statistics.tasks_error = error == -EBUSY ? 0 : error;
		agent->tasks = error ? (struct reported_tasks){ 0 } : tasks;
	}
	pthread_mutex_unlock(&agent->lock);
	if (!asked)
		agent_count_rejected(agent);
}

static void handle_session_message(struct agent *agent, const struct agent_message *message,
				   uint64_t time)
{
	const struct agent_pong *pong = agent_payload(message, AGENT_PONG_MIN);
	const struct agent_events *events = agent_payload(message, sizeof(*events));
	const struct agent_round *round = agent_payload(message, sizeof(*round));

	if (message->type == AGENT_PONG && pong)
		agent_handle_pong(agent, message, time);
	else if (message->type == AGENT_EVENTS && events)
		handle_events(agent, events, agent_payload_size(message) - sizeof(*events));
	else if (message->type == AGENT_ROUND && round)
		handle_round(agent, round);
	else if (message->type == AGENT_TABLE)
		handle_table(agent, message, time);
	else if (message->type == AGENT_JIT_MAP)
		handle_jit_map(agent, message);
	else if (message->type == AGENT_TASKS)
		handle_tasks(agent, message);
}

static void handle_message(struct agent *agent, const struct agent_message *message)
{
	const struct agent_hello *hello = agent_payload(message, sizeof(*hello));
	uint64_t time = agent_now();

	if (message->type != AGENT_PONG)
		agent->received = time;
	if (message->type == AGENT_HELLO && hello)
		agent_handle_hello(agent, hello, time);
	else if (agent->statistics.open)
		handle_session_message(agent, message, time);
}

void agent_handle_messages(struct agent *agent)
{
	const struct agent_message *message;
	int found;

	THREAD_CHECK(&agent->on_thread);
	while ((found = agent_stream_next(&agent->stream, AGENT_HELLO, &message)) > 0)
		handle_message(agent, message);
	if (agent->timeline.broken)
		agent_begin_session(agent, agent_now());
	if (found < 0) {
		agent_count_rejected(agent);
		agent_begin_session(agent, agent_now());
	}
}
