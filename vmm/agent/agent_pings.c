/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/clock_ns.h"
#include "vmm/agent/agent_state.h"

/* The first pings follow quickly, so that the first events have precise times; later ones limit the
 * drift while the guest reports events or has JIT maps. An idle guest is pinged just often enough
 * that samples need not wait for its rounds (collector.c).
 */
#define PING_INTERVAL      (100 * NS_PER_MS)
#define IDLE_PING_INTERVAL (250 * NS_PER_MS)
/* A guest that answers slowly is busy: the interval is at least this multiple of its latest answer
 * time, up to PING_INTERVAL_MAX. */
#define ANSWERS_APART       3
#define PING_INTERVAL_MAX   (500 * NS_PER_MS)
#define FIRST_PINGS         8
#define FIRST_PING_INTERVAL (10 * NS_PER_MS)
/* Rate limit, as each ping costs the guest CPU time: one per PING_INTERVAL over all sessions, and a
 * burst of this number. */
#define PINGS_AT_ONCE (2 * FIRST_PINGS)
/* Bytes received since the latest ping that justify an extra one. */
#define PING_BYTES (AGENT_QUEUE_MAX / 8)
/* How long to wait for a precise exchange before the best imprecise one is used. */
#define IMPRECISE_AFTER (1000 * NS_PER_MS)
/* After this time without any usable exchange the session counts as unanswered: most waiting
 * records could not be converted any longer. */
#define PATIENCE (3 * AGENT_TIMEOUT)

/* Earliest time of the next ping by the rate limit. */
static uint64_t ping_allowed(const struct agent *agent)
{
	uint64_t ahead = (uint64_t)PINGS_AT_ONCE * PING_INTERVAL;

	return agent->pings_paid > ahead ? agent->pings_paid - ahead : 0;
}

static uint64_t wanted_interval(const struct agent *agent)
{
	if (agent->pings < FIRST_PINGS)
		return FIRST_PING_INTERVAL;
	return agent->has_events || agent_jit_active(&agent->jit) ? PING_INTERVAL
								  : IDLE_PING_INTERVAL;
}

static uint64_t ping_interval(const struct agent *agent)
{
	uint64_t wanted = wanted_interval(agent), apart = ANSWERS_APART * agent->answer_took;

	if (apart > PING_INTERVAL_MAX)
		apart = PING_INTERVAL_MAX;
	return apart > wanted ? apart : wanted;
}

static void send_ping(struct agent *agent, uint64_t time)
{
	struct agent_ping ping;

	agent->next_send = time + ping_interval(agent);
	if (agent->ping_open)
		return; /* a second ping would delay the answer */
	agent->pings_paid = (agent->pings_paid > time ? agent->pings_paid : time) + PING_INTERVAL;
	agent->ping_bytes = 0;
	agent->has_events = false;
	agent->ping = tsc_mark_now();
	ping.host_time = agent->ping.time;
	agent->ping_open = agent_send(agent, AGENT_PING, &ping, sizeof(ping));
	agent->pings++;
}

/* E.g. during a snapshot: convert its records before the queue is full. */
bool agent_needs_ping(const struct agent *agent)
{
	return !agent->ping_open && agent->ping_bytes >= PING_BYTES &&
	       agent_timeline_needs_exchange(&agent->timeline);
}

/* The first events after a quiet time do not wait for the idle interval. */
void agent_hasten_ping(struct agent *agent)
{
	uint64_t due = agent->ping.time + PING_INTERVAL;

	if (agent->has_events && agent->pings >= FIRST_PINGS &&
	    ping_interval(agent) == PING_INTERVAL && due < agent->next_send)
		agent->next_send = due;
}

/* The host's kernel may stop using its TSC at any time. Checked after all readings of an exchange,
 * so that the check covers them.
 */
static void check_host_clock(struct agent *agent)
{
	agent->tsc_usable = agent->tsc_usable && tsc_is_reliable(agent->options.clocksources);
	if (!tsc_is_clocksource(agent->options.clocksources))
		agent->timeline.clock.unseen = AGENT_CLOCK_KVM_DRIFT;
}

/* Narrows EXCHANGE by the guest's two TSC readings around its clock reading. If they contradict the
 * messages, the offset is wrong and the TSC is not used again.
 */
static void use_tsc(struct agent *agent, const struct agent_pong *pong, const struct tsc_mark *mark,
		    struct agent_clock_exchange *exchange)
{
	uint64_t offset = agent->options.tsc_offset, before, after, ignored;

	if (!agent->tsc_usable)
		return;
	agent->tsc_usable =
		tsc_time(&agent->ping, mark, pong->tsc_before - offset, &before, &ignored) &&
		tsc_time(&agent->ping, mark, pong->tsc_after - offset, &ignored, &after) &&
		before <= after && before <= exchange->after && after >= exchange->before;
	if (!agent->tsc_usable)
		return;
	exchange->before = before > exchange->before ? before : exchange->before;
	exchange->after = after < exchange->after ? after : exchange->after;
}

/* The guest was paused or migrated: the times of its latest records are unknown. Restarts the
 * session.
 */
static void begin_after_jump(struct agent *agent, uint64_t time)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.clock_jumps++;
	pthread_mutex_unlock(&agent->lock);
	agent_begin_session(agent, time);
}

static void note_clock(struct agent *agent, const struct agent_clock_exchange *exchange)
{
	pthread_mutex_lock(&agent->lock);
	agent->statistics.clock_kvm_drift = agent->timeline.clock.unseen;
	agent->statistics.clock_error =
		(exchange->after - exchange->before) / 2 + 1 + agent->timeline.clock.unseen;
	agent->statistics.tsc_used = agent->tsc_usable;
	pthread_mutex_unlock(&agent->lock);
}

/* Subtracts the time that the agent held the ping before it read its clock. Impossible values are
 * ignored. A clock that is set forward during that time is not detected: events after that get
 * times that are too late, by at most this amount.
 */
static void use_receipt(struct agent *agent, const struct agent_message *message,
			struct agent_clock_exchange *exchange)
{
	const struct agent_pong *pong = agent_payload(message, sizeof(*pong));
	uint64_t time = pong ? pong->guest_time - pong->received : 0, before;

	if (time > exchange->after - agent->ping.time || agent->timeline.clock.unseen)
		return;
	before = agent->ping.time + time - time / (1000000 / AGENT_CLOCK_DRIFT_PPM);
	if (before > exchange->before && before <= exchange->after)
		exchange->before = before;
}

static void use_exchange(struct agent *agent, const struct agent_clock_exchange *exchange,
			 uint64_t time)
{
	agent->last_answer = agent->last_time = time;
	note_clock(agent, exchange);
	agent->imprecise = (struct agent_clock_exchange){ 0 };
	agent_timeline_emit(&agent->timeline);
}

static uint64_t width(const struct agent_clock_exchange *exchange)
{
	return exchange->after - exchange->before;
}

/* Adds the time since the last usable exchange or the last call. */
static void count_imprecise(struct agent *agent, uint64_t time)
{
	uint64_t since = agent->imprecise_until > agent->last_time ? agent->imprecise_until
								   : agent->last_time;

	agent->imprecise_until = time;
	pthread_mutex_lock(&agent->lock);
	agent->statistics.imprecise += time - since;
	pthread_mutex_unlock(&agent->lock);
}

/* Waits for a better exchange; after IMPRECISE_AFTER uses the best one so far. */
static void use_imprecise(struct agent *agent, const struct agent_clock_exchange *exchange,
			  uint64_t time)
{
	struct agent_clock_exchange *best = &agent->imprecise, taken;

	if (time < agent->last_time + PATIENCE)
		agent->last_answer = time;
	if (agent_clock_usable(&agent->timeline.clock, exchange) &&
	    (!best->after || width(exchange) < width(best)))
		*best = *exchange;
	if (time < agent->last_time + IMPRECISE_AFTER)
		return;
	count_imprecise(agent, time);
	if (!best->after)
		return;
	taken = *best;
	agent_clock_add_imprecise(&agent->timeline.clock, &taken);
	use_exchange(agent, &taken, time);
}

void agent_handle_pong(struct agent *agent, const struct agent_message *message, uint64_t time)
{
	const struct agent_pong *pong = agent_payload(message, AGENT_PONG_MIN);
	struct agent_clock_exchange exchange = { agent->ping.time, time, pong->guest_time };
	struct tsc_mark mark = tsc_mark_now();

	if (!agent->ping_open || pong->host_time != agent->ping.time)
		return agent_count_rejected(agent);
	agent->ping_open = false;
	agent->answered = true;
	agent->answer_took = time - agent->ping.time;
	if (agent->next_send < agent->ping.time + ping_interval(agent))
		agent->next_send = agent->ping.time + ping_interval(agent);
	check_host_clock(agent);
	use_tsc(agent, pong, &mark, &exchange);
	use_receipt(agent, message, &exchange);
	switch (agent_clock_add(&agent->timeline.clock, &exchange)) {
	case AGENT_CLOCK_IMPRECISE:
		use_imprecise(agent, &exchange, time);
		return;
	case AGENT_CLOCK_JUMPED:
		begin_after_jump(agent, time);
		return;
	case AGENT_CLOCK_ACCEPTED:
		use_exchange(agent, &exchange, time);
		return;
	}
}

void agent_ping(struct agent *agent, uint64_t time)
{
	THREAD_CHECK(&agent->on_thread);
	if (time >= ping_allowed(agent) || agent_needs_ping(agent))
		send_ping(agent, time);
	else
		agent->next_send = ping_allowed(agent);
}
