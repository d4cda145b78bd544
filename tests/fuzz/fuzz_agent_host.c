/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the agent's protocol. Input: what a guest sends. It is
 * taken apart as the host does it; every record of an EVENTS message is
 * decoded and given a time.
 */
#include <stdlib.h>

#include "shared/agent_protocol.h"
#include "vmm/guest/agent_clock.h"
#include "vmm/guest/agent_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct agent_stream stream;

static void take_records(struct span records, struct agent_clock *clock)
{
	struct agent_record record;
	uint64_t error;
	int size;

	while ((size = agent_record_decode(records, &record)) > 0) {
		agent_clock_host_time(clock, record.guest_time, &error);
		if (record.sideband.head.size &&
		    !sideband_check(span_of(record.sideband.bytes, record.sideband.head.size)))
			abort();
		records = span_of(records.data + size, records.size - (size_t)size);
	}
}

static void take_message(const struct agent_message *message, struct agent_clock *clock)
{
	const struct agent_events *events = agent_payload(message, sizeof(*events));
	const struct agent_pong *pong = agent_payload(message, sizeof(*pong));

	if (message->type == AGENT_EVENTS && events)
		take_records(span_of(events->records, agent_payload_size(message) - sizeof(*events)), clock);
	if (message->type == AGENT_PONG && pong && pong->tsc_before <= pong->tsc_after)
		agent_clock_exchange(clock, pong->tsc_before, pong->tsc_after, pong->guest_time);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct agent_clock clock = { 0 };
	const struct agent_message *message;

	agent_clock_exchange(&clock, 1000, 2000, 500);
	agent_stream_reset(&stream);
	while (size) {
		size_t room, part;
		uint8_t *to = agent_stream_room(&stream, &room);
		int found;

		part = size < room ? size : room;
		part = part > 100 ? part / 2 : part; /* cut anywhere */
		memcpy(to, data, part);
		agent_stream_received(&stream, part);
		data += part;
		size -= part;
		while ((found = agent_stream_next(&stream, AGENT_HELLO, &message)))
			if (found > 0)
				take_message(message, &clock);
	}
	return 0;
}
