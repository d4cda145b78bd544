/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/agent/agent_tables.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "shared/span.h"
#include "shared/unconst.h"

/* First size of an arriving table, bytes. */
#define ROOM_FIRST 65536u

/* A request in the queue: a whole message. */
struct queued_request {
	struct queued_request *next;
	struct agent_message message; /* with struct agent_request as payload */
};

struct agent_tables {
	struct guest_account *account;
	struct queued_request *first, **last;
	size_t waiting;                    /* length of the queue */
	bool sent;                         /* the first one was sent */
	uint64_t request;                  /* number of the latest one sent */
	uint64_t active;                   /* when it was sent, or when its latest part arrived */
	z_stream stream;                   /* in use while there is `partial` */
	struct agent_image_table *partial; /* its room are the charged bytes */
	struct agent_image_table *oldest, **end; /* complete ones */
	struct agent_image_table *kernel;        /* complete; NULL */
	bool kernel_queued;                      /* a request for it is in the queue */
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
	guest_account_release(table->account, table->charged);
	free(table);
}

static void drop_partial(struct agent_tables *tables)
{
	if (!tables->partial)
		return;
	inflateEnd(&tables->stream);
	agent_image_table_free(tables->partial);
	tables->partial = NULL;
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

	tables->sent = false;
	if (is_kernel(queued))
		tables->kernel_queued = false;
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
		**place = tables->sent ? &tables->first->next : &tables->first;

	if (tables->kernel_queued)
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
	tables->kernel_queued = true;
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
	if (tables->sent && time > tables->active + AGENT_TABLES_PATIENCE)
		cancel(tables, &tables->statistics.refused, -ETIMEDOUT);
	if (tables->sent || !tables->first)
		return NULL;
	tables->sent = true;
	tables->active = time;
	tables->statistics.requested += !is_kernel(tables->first);
	request_of(tables->first)->request = ++tables->request;
	return &tables->first->message;
}

static bool grow(struct agent_tables *tables)
{
	size_t before = tables->partial ? tables->partial->charged : 0;
	size_t room = before ? 2 * before : ROOM_FIRST;
	struct agent_image_table *larger;

	if (room > AGENT_TABLE_MAX || !charge(tables, room - before))
		return false;
	larger = realloc(tables->partial, sizeof(*larger) + room);
	if (!larger) {
		guest_account_release(tables->account, room - before);
		return false;
	}
	if (!before)
		*larger = (struct agent_image_table){ .account = tables->account };
	larger->charged = room;
	tables->partial = larger;
	return true;
}

/* On failure the caller drops the partial table. */
static bool begin(struct agent_tables *tables)
{
	const struct agent_request *request = request_of(tables->first);

	tables->stream = (z_stream){ 0 };
	if (!grow(tables))
		return false;
	tables->partial->build_id_size = request->build_id_size;
	memcpy(tables->partial->build_id, request->build_id, sizeof(request->build_id));
	return inflateInit(&tables->stream) == Z_OK;
}

/* 1 at the end of the stream, else 0; -EPROTO if it is invalid or too large. */
static int unpack(struct agent_tables *tables, struct span data)
{
	z_stream *stream = &tables->stream;
	int result;

	stream->next_in = unconst(data.data);
	stream->avail_in = (unsigned int)data.size;
	do {
		struct agent_image_table *table = tables->partial;

		if (table->size == table->charged && !grow(tables))
			return -EPROTO;
		table = tables->partial;
		stream->next_out = table->bytes + table->size;
		stream->avail_out = (unsigned int)(table->charged - table->size);
		result = inflate(stream, Z_NO_FLUSH);
		table->size = table->charged - stream->avail_out;
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
	table = exact ? exact : table;
	guest_account_release(table->account, table->charged - table->size);
	table->charged = table->size;
	if (is_kernel(tables->first)) {
		agent_image_table_free(agent_tables_pop_kernel(tables));
		tables->kernel = table;
		tables->statistics.kernels++;
		tables->statistics.kernel_error = 0;
	} else {
		*tables->end = table;
		tables->end = &table->next;
		tables->statistics.complete++;
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
	if (!tables->sent || part->request != tables->request)
		return true; /* answer to an earlier request */
	tables->active = time;
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
	tables->sent = false;
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
	statistics->waiting = tables->waiting - tables->kernel_queued;
}
