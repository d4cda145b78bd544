/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of the agent protocol. Input: the bytes that a guest sends. They are split into
 * messages; every record of an EVENTS message is decoded and converted to host time; symbol files
 * are made from complete tables. The raw input is also read as a symbol table, as a kernel table
 * and as a task list.
 */
#include <stdlib.h>

#include "shared/agent_protocol.h"
#include "vmm/agent/agent_clock.h"
#include "vmm/agent/agent_records.h"
#include "vmm/agent/agent_tables.h"
#include "vmm/agent/agent_timeline.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/guest/reported_tasks.h"
#include "vmm/symbols/image_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct agent_stream stream;
static struct agent_queue pending;
static uint64_t host; /* end of the latest accepted exchange */

static void read_records(struct span records, struct agent_clock *clock)
{
	struct agent_record record;
	uint64_t error;
	int size;

	while ((size = agent_record_decode(records, &record)) > 0) {
		agent_clock_host_time(clock, record.guest_time, &error);
		if (record.sideband.head.size)
			agent_queue_add(&pending, record.guest_time, &record.sideband.head);
		if (record.sideband.head.size &&
		    !sideband_check(span_of(record.sideband.bytes, record.sideband.head.size)))
			abort();
		records = span_of(records.data + size, records.size - (size_t)size);
	}
}

/* The guest controls the time and the duration of the exchange. */
static void read_pong(const struct agent_pong *pong, struct agent_clock *clock)
{
	struct agent_clock_exchange exchange = { .guest = pong->guest_time };
	uint64_t guest_time, error;

	exchange.before = host + pong->tsc_before % (1ull << 40);
	exchange.after = exchange.before + pong->tsc_after % (1ull << 30);
	if (agent_clock_add(clock, &exchange) == AGENT_CLOCK_ACCEPTED)
		host = exchange.after;
	while (agent_queue_first(&pending, &guest_time) && agent_clock_covers(clock, guest_time)) {
		agent_clock_host_time(clock, guest_time, &error);
		agent_queue_pop(&pending);
	}
}

static const uint8_t build_id[20] = { 1 };

static void make_file(struct span table)
{
	struct bytes file;

	image_file_make(&file, table, span_of(build_id, sizeof(build_id)), false);
	free(file.data);
}

/* Users of a module rely on its build ID, name and order. */
static void check_kernel(struct span table)
{
	struct reported_kernel *reported;

	if (reported_kernel_create(&reported, table, NULL))
		return;
	for (size_t i = 0; i < reported->module_count; i++) {
		const struct guest_module *module = &reported->modules[i];

		if (!module->size || !module->build_id_size ||
		    module->build_id_size > sizeof(module->build_id) || !strlen(module->name) ||
		    (i && strcmp(module[-1].name, module->name) > 0))
			abort();
	}
	reported_kernel_free(reported);
}

/* Users of the tasks rely on terminated, unique names. */
static void check_tasks(struct span payload)
{
	struct reported_tasks reported;

	if (reported_tasks_read(&reported, payload))
		return;
	for (size_t i = 0; i < reported.count; i++)
		for (size_t j = 0; j < i; j++)
			if (!strncmp(reported.tasks[i].comm, reported.tasks[j].comm,
				     sizeof(reported.tasks[i].comm)))
				abort();
}

static void read_message(const struct agent_message *message, struct agent_clock *clock,
			 struct agent_tables *tables)
{
	const struct agent_events *events = agent_payload(message, sizeof(*events));
	const struct agent_pong *pong = agent_payload(message, sizeof(*pong));

	if (message->type == AGENT_EVENTS && events)
		read_records(
			span_of(events->records, agent_payload_size(message) - sizeof(*events)),
			clock);
	if (message->type == AGENT_PONG && pong)
		read_pong(pong, clock);
	if (message->type == AGENT_TASKS)
		check_tasks(span_of(message->payload, agent_payload_size(message)));
	if (message->type == AGENT_TABLE) {
		agent_tables_next(tables, 1);
		agent_tables_receive(tables, message, 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct agent_image image = { .build_id_size = 20, .path = "" };
	struct guest_account account;
	struct agent_tables *tables;
	struct agent_clock clock = { 0 };
	const struct agent_message *message;
	struct agent_image_table *table;

	guest_account_init(&account, 4 << 20);
	tables = agent_tables_new(&account);
	if (!tables)
		abort();
	for (int i = 0; i < 4; i++)
		agent_tables_request(tables, &image);
	agent_tables_request_kernel(tables, 0);
	make_file(span_of(data, size));
	check_kernel(span_of(data, size));
	check_tasks(span_of(data, size));
	agent_clock_add(&clock, &(struct agent_clock_exchange){ 1000, 2000, 500 });
	host = 2000;
	agent_stream_reset(&stream);
	while (size) {
		size_t room, part;
		uint8_t *to = agent_stream_room(&stream, &room);
		int found;

		part = size < room ? size : room;
		part = part > 100 ? part / 2 : part; /* so that messages are cut anywhere */
		memcpy(to, data, part);
		agent_stream_received(&stream, part);
		data += part;
		size -= part;
		while ((found = agent_stream_next(&stream, AGENT_HELLO, &message)))
			if (found > 0)
				read_message(message, &clock, tables);
	}
	agent_clock_end(&clock, host + 1000, pending.latest);
	agent_queue_clear(&pending);
	while ((table = agent_tables_pop(tables))) {
		make_file(span_of(table->bytes, table->size));
		agent_image_table_free(table);
	}
	table = agent_tables_pop_kernel(tables);
	if (table)
		check_kernel(span_of(table->bytes, table->size));
	agent_image_table_free(table);
	agent_tables_free(tables);
	if (account.used)
		abort();
	return 0;
}
