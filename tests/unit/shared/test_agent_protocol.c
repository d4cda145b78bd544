/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/agent_protocol.h"
#include "tests/unit/shim/test.h"

/* Static: too large for a stack. */
static struct agent_stream stream;

static void receive(const void *bytes, size_t size)
{
	size_t room;
	uint8_t *to = agent_stream_room(&stream, &room);

	CHECK(size <= room);
	memcpy(to, bytes, size);
	agent_stream_received(&stream, size);
}

/* An AGENT_START in the stream's own words: header, then payload. */
struct start {
	uint32_t size;
	uint16_t type, reserved;
	struct agent_start start;
};

static struct start make_start(uint64_t session)
{
	return (struct start){
		.size = sizeof(struct start),
		.type = AGENT_START,
		.start = { .magic = AGENT_MAGIC, .session = session, .version = 1 },
	};
}

static int next(const struct agent_message **message)
{
	return agent_stream_next(&stream, AGENT_START, message);
}

TEST(agent_protocol, message_comes_whole_however_it_is_cut)
{
	struct start start = make_start(42);
	const struct agent_message *message;
	const struct agent_start *payload;

	agent_stream_reset(&stream);
	for (size_t i = 0; i < sizeof(start); i++) {
		CHECK_EQUAL(next(&message), 0);
		receive((const uint8_t *)&start + i, 1);
	}
	REQUIRE(next(&message) == 1);
	payload = agent_payload(message, sizeof(*payload));
	REQUIRE(payload != NULL);
	CHECK_EQUAL(payload->session, 42);
	CHECK(!agent_payload(message, sizeof(*payload) + 1));
	CHECK_EQUAL(next(&message), 0);
}

TEST(agent_protocol, resynchronizes_after_garbage_of_any_length)
{
	static const uint8_t bytes[] = { 0xff, 0x01, 0x00, 'g' };
	struct start start = make_start(43);
	const struct agent_message *message;

	for (size_t garbage = 0; garbage < 64; garbage++) {
		agent_stream_reset(&stream);
		for (size_t i = 0; i < garbage; i++)
			receive(&bytes[i % 4], 1);
		receive(&start, sizeof(start));
		receive(&start, sizeof(start));
		CHECK_EQUAL(next(&message), 1);
		CHECK_EQUAL((uintptr_t)message->payload % 8, 0);
		CHECK_EQUAL(next(&message), 1);
		CHECK_EQUAL(next(&message), 0);
	}
}

TEST(agent_protocol, impossible_sizes_are_refused_and_the_next_start_is_found)
{
	static const uint32_t sizes[] = {
		0, 4, 7, 12, AGENT_MESSAGE_MAX + 8, UINT32_MAX, UINT32_MAX - 7
	};
	struct start start = make_start(44);
	const struct agent_message *message;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct agent_message bad = { .size = sizes[i], .type = AGENT_PING };

		agent_stream_reset(&stream);
		receive(&start, sizeof(start));
		CHECK_EQUAL(next(&message), 1);
		receive(&bad, sizeof(bad));
		CHECK_EQUAL(next(&message), -EPROTO);
		receive(&start, sizeof(start));
		CHECK_EQUAL(next(&message), 1);
		CHECK_EQUAL(message->type, AGENT_START);
	}
}

TEST(agent_protocol, the_largest_message_always_fits)
{
	static uint8_t large[AGENT_MESSAGE_MAX] __attribute__((aligned(8)));
	struct start start = make_start(45);
	const struct agent_message *message;
	struct agent_message *header = (void *)large;

	*header = (struct agent_message){ .size = sizeof(large), .type = 99 };
	agent_stream_reset(&stream);
	receive(&start, sizeof(start));
	CHECK_EQUAL(next(&message), 1);
	for (int i = 0; i < 5; i++) {
		receive(large, sizeof(large) - 16);
		CHECK_EQUAL(next(&message), 0);
		receive(large + sizeof(large) - 16, 16);
		CHECK_EQUAL(next(&message), 1);
		CHECK_EQUAL(message->size, sizeof(large));
	}
}
