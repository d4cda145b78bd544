/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_tables.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/span.h"
#include "shared/unconst.h"

/* A table that comes grows from here. */
#define ROOM_FIRST 65536u

/* Waits to be asked for: a whole message. */
struct queued_request {
	struct queued_request *next;
	struct agent_message message; /* with struct agent_request as payload */
};

struct agent_tables {
	struct guest_account *account;
	struct queued_request *first, **last; /* the first is asked, while `asking` */
	size_t waiting;
	bool asking;
	uint64_t request; /* the latest one's number */
	uint64_t heard;   /* when it was asked, or had its latest part */
	z_stream stream;  /* in use while there is `partial` */
	struct agent_image_table *partial;
	size_t room;                             /* bytes that it has room for */
	struct agent_image_table *oldest, **end; /* those that came */
	struct agent_image_table *kernel;        /* that came; NULL */
	bool kernel_wanted;                      /* its queued is one of those */
	struct agent_tables_statistics statistics;
};

struct agent_tables *agent_tables_new(struct guest_account *account)
{
	struct agent_tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return NULL;
	tables->account = account;
	tables->last = &tables->first;
	tables->end = &tables->oldest;
	return tables;
}

void agent_image_table_free(struct agent_image_table *table)
{
	if (!table)
		return;
	guest_account_release(table->account, table->taken);
	free(table);
}

static void drop_partial(struct agent_tables *tables)
{
	if (!tables->partial)
		return;
	inflateEnd(&tables->stream);
	agent_image_table_free(tables->partial);
	tables->partial = NULL;
	tables->room = 0;
}

static size_t request_size(const struct queued_request *queued)
{
	return offsetof(struct queued_request, message) + queued->message.size;
}

static struct agent_request *request_of(struct queued_request *queued)
{
	return (struct agent_request *)queued->message.payload;
}

/* Drops the oldest tables until SIZE fits. Not by the account's own callback, which would call back
 * here. */
static bool charge(struct agent_tables *tables, size_t size)
{
	while (!guest_account_try_charge(tables->account, size)) {
		if (!tables->oldest)
			return false;
		agent_image_table_free(agent_tables_pop(tables));
		tables->statistics.dropped++;
	}
	return true;
}

void agent_tables_drop(struct agent_tables *tables, size_t size)
{
	if (charge(tables, size))
		guest_account_release(tables->account, size);
}

static bool is_kernel(struct queued_request *queued)
{
	return request_of(queued)->kind == AGENT_TABLE_KERNEL;
}

static void remove_request(struct agent_tables *tables)
{
	struct queued_request *queued = tables->first;

	tables->asking = false;
	if (is_kernel(queued))
		tables->kernel_wanted = false;
	tables->first = queued->next;
	if (!tables->first)
		tables->last = &tables->first;
	tables->waiting--;
	guest_account_release(tables->account, request_size(queued));
	free(queued);
}

void agent_tables_free(struct agent_tables *tables)
{
	struct agent_image_table *table;

	if (!tables)
		return;
	drop_partial(tables);
	while (tables->first)
		remove_request(tables);
	while ((table = agent_tables_pop(tables)))
		agent_image_table_free(table);
	agent_image_table_free(tables->kernel);
	free(tables);
}

/* With a path of PATH bytes to follow; NULL without memory. */
static struct queued_request *make_request(struct agent_tables *tables, enum agent_table_kind kind,
					   size_t path)
{
	size_t size = (sizeof(struct agent_message) + sizeof(struct agent_request) + path + 1 + 7) /
		      8 * 8;
	struct queued_request *queued = calloc(1, offsetof(struct queued_request, message) + size);

	if (!queued)
		return NULL;
	queued->message = (struct agent_message){ .size = (uint32_t)size, .type = AGENT_REQUEST };
	request_of(queued)->kind = kind;
	if (charge(tables, request_size(queued)))
		return queued;
	free(queued);
	return NULL;
}

int agent_tables_request(struct agent_tables *tables, const struct agent_image *image)
{
	size_t path = strnlen(image->path, SIDEBAND_NAME_MAX - 1);
	struct queued_request *queued;
	struct agent_request *request;

	assert(image->build_id_size && image->build_id_size <= sizeof(request->build_id));
	if (tables->waiting >= AGENT_TABLES_WAITING)
		return -EAGAIN;
	queued = make_request(tables, AGENT_TABLE_SYMBOLS, path);
	if (!queued)
		return -ENOMEM;
	request = request_of(queued);
	request->pid = image->pid;
	request->start = image->start;
	request->end = image->end;
	request->build_id_size = (uint32_t)image->build_id_size;
	memcpy(request->build_id, image->build_id, image->build_id_size);
	memcpy(request->path, image->path, path);
	*tables->last = queued;
	tables->last = &queued->next;
	tables->waiting++;
	return 0;
}

int agent_tables_request_kernel(struct agent_tables *tables, uint64_t modules_hash)
{
	struct queued_request *queued,
		**place = tables->asking ? &tables->first->next : &tables->first;

	if (tables->kernel_wanted)
		return -EALREADY;
	queued = make_request(tables, AGENT_TABLE_KERNEL, 0);
	if (!queued)
		return -ENOMEM;
	request_of(queued)->start = modules_hash;
	queued->next = *place;
	*place = queued;
	if (!queued->next)
		tables->last = &queued->next;
	tables->waiting++;
	tables->kernel_wanted = true;
	return 0;
}

/* Cancels the current request and counts it in COUNT if it is for an image. */
static void cancel(struct agent_tables *tables, uint64_t *count, int error)
{
	if (is_kernel(tables->first))
		tables->statistics.kernel_error =
			error == -EALREADY ? 0 : error; /* the table is unchanged */
	else
		(*count)++;
	drop_partial(tables);
	remove_request(tables);
}

const struct agent_message *agent_tables_next(struct agent_tables *tables, uint64_t time)
{
	if (tables->asking && time > tables->heard + AGENT_TABLES_PATIENCE)
		cancel(tables, &tables->statistics.refused, -ETIMEDOUT);
	if (tables->asking || !tables->first)
		return NULL;
	tables->asking = true;
	tables->heard = time;
	tables->statistics.asked += !is_kernel(tables->first);
	request_of(tables->first)->request = ++tables->request;
	return &tables->first->message;
}

static bool grow(struct agent_tables *tables)
{
	size_t room = tables->room ? 2 * tables->room : ROOM_FIRST;
	struct agent_image_table *larger;

	if (room > AGENT_TABLE_MAX || !charge(tables, room - tables->room))
		return false;
	larger = realloc(tables->partial, sizeof(*larger) + room);
	if (!larger) {
		guest_account_release(tables->account, room - tables->room);
		return false;
	}
	if (!tables->partial)
		*larger = (struct agent_image_table){ .account = tables->account };
	larger->taken = room;
	tables->partial = larger;
	tables->room = room;
	return true;
}

static bool begin(struct agent_tables *tables)
{
	const struct agent_request *request = request_of(tables->first);

	if (!grow(tables))
		return false;
	tables->stream = (z_stream){ 0 };
	if (inflateInit(&tables->stream) != Z_OK) {
		agent_image_table_free(tables->partial);
		tables->partial = NULL;
		tables->room = 0;
		return false;
	}
	tables->partial->build_id_size = request->build_id_size;
	memcpy(tables->partial->build_id, request->build_id, sizeof(request->build_id));
	return true;
}

/* 1 at the end of the stream, else 0; -EPROTO if it is invalid or too large. */
static int unpack(struct agent_tables *tables, struct span data)
{
	z_stream *stream = &tables->stream;
	int result;

	stream->next_in = unconst(data.data);
	stream->avail_in = (unsigned int)data.size;
	do {
		struct agent_image_table *table;

		if (tables->partial->size == tables->room && !grow(tables))
			return -EPROTO;
		table = tables->partial;
		stream->next_out = table->bytes + table->size;
		stream->avail_out = (unsigned int)(tables->room - table->size);
		result = inflate(stream, Z_NO_FLUSH);
		table->size = tables->room - stream->avail_out;
		/* When the table is full, zlib may hold more output, or none: Z_BUF_ERROR then. */
	} while (result == Z_OK && (stream->avail_in || !stream->avail_out));
	if (result == Z_BUF_ERROR)
		result = Z_OK;
	return result == Z_STREAM_END ? 1 : result == Z_OK ? 0 : -EPROTO;
}

static void finish(struct agent_tables *tables)
{
	struct agent_image_table *table = tables->partial;
	struct agent_image_table *exact = realloc(table, sizeof(*table) + table->size);

	inflateEnd(&tables->stream);
	tables->partial = NULL;
	tables->room = 0;
	table = exact ? exact : table;
	guest_account_release(table->account, table->taken - table->size);
	table->taken = table->size;
	if (is_kernel(tables->first)) {
		agent_image_table_free(agent_tables_pop_kernel(tables));
		tables->kernel = table;
		tables->statistics.kernels++;
		tables->statistics.kernel_error = 0;
	} else {
		*tables->end = table;
		tables->end = &table->next;
		tables->statistics.come++;
	}
	remove_request(tables);
}

static bool receive_part(struct agent_tables *tables, struct span data, bool end)
{
	int result = 0;

	if (!tables->partial && !begin(tables))
		return false;
	if (data.size)
		result = unpack(tables, data);
	if (result < 0 || end != (result == 1))
		return false;
	if (end)
		finish(tables);
	return true;
}

bool agent_tables_receive(struct agent_tables *tables, const struct agent_message *message,
			  uint64_t time)
{
	const struct agent_table *part = agent_payload(message, sizeof(*part));
	struct span data;

	if (!part || !span_part(span_of(part->data, agent_payload_size(message) - sizeof(*part)), 0,
				part->size, &data))
		return false;
	if (!tables->asking || part->request != tables->request)
		return true; /* answer to an earlier request */
	tables->heard = time;
	if (part->error) {
		cancel(tables, &tables->statistics.without, part->error);
		return true;
	}
	if (receive_part(tables, data, part->flags & AGENT_TABLE_END))
		return true;
	cancel(tables, &tables->statistics.refused, -EPROTO);
	return false;
}

void agent_tables_session_ended(struct agent_tables *tables)
{
	drop_partial(tables);
	tables->asking = false;
}

struct agent_image_table *agent_tables_pop(struct agent_tables *tables)
{
	struct agent_image_table *table = tables->oldest;

	if (!table)
		return NULL;
	tables->oldest = table->next;
	if (!tables->oldest)
		tables->end = &tables->oldest;
	table->next = NULL;
	return table;
}

struct agent_image_table *agent_tables_pop_kernel(struct agent_tables *tables)
{
	struct agent_image_table *table = tables->kernel;

	tables->kernel = NULL;
	return table;
}

void agent_tables_statistics(const struct agent_tables *tables,
			     struct agent_tables_statistics *statistics)
{
	*statistics = tables->statistics;
	statistics->waiting = tables->waiting - tables->kernel_wanted;
}
