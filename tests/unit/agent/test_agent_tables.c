/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of tables: requests, answers, and a hostile guest. */
#include "vmm/agent/agent_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/unit/shim/test.h"

static const struct agent_image image = { .pid = 7,
					  .start = 0x1000,
					  .end = 0x2000,
					  .build_id = { 1, 2, 3 },
					  .build_id_size = 20,
					  .path = "/bin/x" };

/* A message of type AGENT_TABLE. */
struct answer {
	struct agent_message message;
	struct agent_table table;
	uint8_t data[60000];
} __attribute__((packed, aligned(8)));

static struct answer answer;

static bool take(struct agent_tables *tables, const void *data, size_t size, uint64_t request,
		 uint32_t flags)
{
	size_t whole = (sizeof(answer.message) + sizeof(answer.table) + size + 7) / 8 * 8;

	answer.message = (struct agent_message){ .size = (uint32_t)whole, .type = AGENT_TABLE };
	answer.table =
		(struct agent_table){ .request = request, .flags = flags, .size = (uint32_t)size };
	if (size)
		memcpy(answer.data, data, size);
	return agent_tables_receive(tables, &answer.message, 1);
}

static const struct agent_request *ask_of(const struct agent_message *message)
{
	return message ? agent_payload(message, sizeof(struct agent_request)) : NULL;
}

/* Asks for one image and answers with SIZE zero bytes, in parts of PART bytes of the stream. */
static void answer_with(struct agent_tables *tables, size_t size, size_t part)
{
	uint8_t *plain = calloc(1, size + 1), *packed = malloc(compressBound(size));
	uLongf packed_size = compressBound(size);
	const struct agent_request *ask;

	compress(packed, &packed_size, plain, size);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	ask = ask_of(agent_tables_next(tables, 1));
	for (size_t done = 0; ask && done < packed_size; done += part) {
		size_t now = packed_size - done < part ? packed_size - done : part;

		CHECK(take(tables, packed + done, now, ask->request,
			   done + now == packed_size ? AGENT_TABLE_END : 0));
	}
	free(plain);
	free(packed);
}

/* Of 1 MiB. */
static struct guest_account account;

static struct agent_tables *make_tables(void)
{
	guest_account_init(&account, 1 << 20);
	return agent_tables_new(&account);
}

TEST(agent_tables, one_at_a_time_is_requested_and_arrives_in_parts)
{
	struct agent_tables *tables = make_tables();
	struct agent_tables_statistics statistics;
	struct agent_image_table *table;
	const struct agent_message *message;
	const struct agent_request *ask;

	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	message = agent_tables_next(tables, 1);
	ask = ask_of(message);
	REQUIRE(ask != NULL);
	CHECK_EQUAL(message->size % 8, 0);
	CHECK_EQUAL(ask->pid, 7);
	CHECK_EQUAL(ask->kind, AGENT_TABLE_SYMBOLS);
	CHECK_STRING(ask->path, "/bin/x");
	CHECK(!memcmp(ask->build_id, image.build_id, 20));
	CHECK(agent_tables_next(tables, 2) == NULL);
	/* The first file is missing; the second is requested. */
	answer.message = (struct agent_message){ .size = sizeof(struct agent_message) +
							 sizeof(struct agent_table),
						 .type = AGENT_TABLE };
	answer.table = (struct agent_table){ .request = ask->request,
					     .error = -ENOENT,
					     .flags = AGENT_TABLE_END };
	CHECK(agent_tables_receive(tables, &answer.message, 1));
	REQUIRE(agent_tables_next(tables, 3) != NULL);
	agent_tables_session_ended(tables);
	answer_with(tables, 200000, 50);
	table = agent_tables_pop(tables);
	REQUIRE(table != NULL);
	CHECK_EQUAL(table->size, 200000);
	CHECK_EQUAL(table->build_id_size, 20);
	CHECK(!memcmp(table->build_id, image.build_id, 20));
	agent_image_table_free(table);
	agent_tables_statistics(tables, &statistics);
	CHECK_EQUAL(statistics.without, 1);
	CHECK_EQUAL(statistics.complete, 1);
	CHECK_EQUAL(statistics.waiting, 1);
	agent_tables_free(tables);
	CHECK_EQUAL(account.used, 0);
}

/* Its request precedes the waiting ones of images, and is not repeated before the answer. */
TEST(agent_tables, the_kernel_s_comes_first)
{
	struct agent_tables *tables = make_tables();
	struct agent_tables_statistics statistics;
	struct agent_image_table *table;
	const struct agent_request *ask;
	uint8_t packed[100];
	uLongf size = sizeof(packed);

	CHECK_EQUAL(compress(packed, &size, (const uint8_t *)"kernel", 6), Z_OK);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	CHECK_EQUAL(agent_tables_request_kernel(tables, 9), 0);
	CHECK_EQUAL(agent_tables_request_kernel(tables, 9), -EALREADY);
	ask = ask_of(agent_tables_next(tables, 1));
	REQUIRE(ask != NULL);
	CHECK_EQUAL(ask->kind, AGENT_TABLE_KERNEL);
	CHECK_EQUAL(ask->start, 9);
	CHECK(take(tables, packed, size, ask->request, AGENT_TABLE_END));
	CHECK(agent_tables_pop(tables) == NULL);
	table = agent_tables_pop_kernel(tables);
	REQUIRE(table != NULL);
	CHECK_EQUAL(table->size, 6);
	CHECK_EQUAL(table->build_id_size, 0);
	agent_image_table_free(table);
	/* While an image is requested: queued after it, and none is lost. */
	REQUIRE(agent_tables_next(tables, 2) != NULL);
	CHECK_EQUAL(agent_tables_request_kernel(tables, 0), 0);
	agent_tables_session_ended(tables);
	ask = ask_of(agent_tables_next(tables, 3));
	CHECK(ask && ask->kind == AGENT_TABLE_SYMBOLS &&
	      take(tables, packed, size, ask->request, AGENT_TABLE_END));
	ask = ask_of(agent_tables_next(tables, 4));
	CHECK(ask && ask->kind == AGENT_TABLE_KERNEL &&
	      take(tables, packed, 3, ask->request, AGENT_TABLE_END) == 0);
	agent_tables_statistics(tables, &statistics);
	CHECK_EQUAL(statistics.kernels, 1);
	CHECK_EQUAL(statistics.kernel_error, -EPROTO);
	CHECK_EQUAL(statistics.complete, 1);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.waiting, 1);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	agent_tables_free(tables);
	CHECK_EQUAL(account.used, 0);
}

TEST(agent_tables, the_oldest_go_where_the_memory_is_full)
{
	struct agent_tables *tables = make_tables();
	struct agent_tables_statistics statistics;
	struct agent_image_table *table;
	size_t bytes = 0;

	for (size_t i = 0; i < 20; i++)
		answer_with(tables, 100000 + i, 50000);
	agent_tables_statistics(tables, &statistics);
	CHECK_EQUAL(statistics.complete, 20);
	CHECK(statistics.dropped >= 10);
	for (size_t i = (size_t)statistics.dropped; (table = agent_tables_pop(tables)); i++) {
		CHECK_EQUAL(table->size, 100000 + i);
		bytes += table->size;
		agent_image_table_free(table);
	}
	CHECK(bytes > 500000 && bytes <= 1 << 20);
	agent_tables_free(tables);
	CHECK_EQUAL(account.used, 0);
}

/* A few KiB that unpack to more than the limit; garbage; an invalid end; answers without a
 * request. */
TEST(agent_tables, hostile_guest_gets_no_more_than_its_memory)
{
	struct agent_tables *tables = make_tables();
	struct agent_tables_statistics statistics;
	static uint8_t zeros[4 << 20], packed[60000];
	uLongf size = sizeof(packed);
	const struct agent_request *ask;

	REQUIRE(compress(packed, &size, zeros, sizeof(zeros)) == Z_OK);
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	ask = ask_of(agent_tables_next(tables, 1));
	REQUIRE(ask != NULL);
	CHECK(!take(tables, packed, size, ask->request, AGENT_TABLE_END));
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	ask = ask_of(agent_tables_next(tables, 1));
	REQUIRE(ask != NULL);
	CHECK(!take(tables, "garbage", 7, ask->request, 0));
	CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	ask = ask_of(agent_tables_next(tables, 1));
	REQUIRE(ask != NULL);
	CHECK(!take(tables, NULL, 0, ask->request, AGENT_TABLE_END));
	CHECK(take(tables, packed, size, 12345, AGENT_TABLE_END));
	answer.table.size = 1u << 31;
	CHECK(!agent_tables_receive(tables, &answer.message, 1));
	for (unsigned int i = 0; i < AGENT_TABLES_WAITING; i++)
		CHECK_EQUAL(agent_tables_request(tables, &image), 0);
	CHECK_EQUAL(agent_tables_request(tables, &image), -EAGAIN);
	/* A request without an answer times out, and the next one is sent. */
	REQUIRE(agent_tables_next(tables, 5) != NULL);
	CHECK(agent_tables_next(tables, 6) == NULL);
	CHECK(agent_tables_next(tables, 6 + AGENT_TABLES_PATIENCE) != NULL);
	agent_tables_statistics(tables, &statistics);
	CHECK_EQUAL(statistics.refused, 4);
	CHECK_EQUAL(statistics.complete, 0);
	CHECK(agent_tables_pop(tables) == NULL);
	agent_tables_free(tables);
	CHECK_EQUAL(account.used, 0);
}
