// SPDX-License-Identifier: Apache-2.0
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
struct question {
	struct question *next;
	struct agent_message message; /* with struct agent_request behind it */
};

struct agent_tables {
	struct guest_account *account;
	struct question *first, **last; /* the first is asked, while `asking` */
	size_t waiting;
	bool asking;
	uint64_t request; /* the latest one's number */
	uint64_t heard;   /* when it was asked, or had its latest part */
	z_stream stream;  /* in use while there is `coming` */
	struct agent_image_table *coming;
	size_t room;                             /* bytes that it has room for */
	struct agent_image_table *oldest, **end; /* those that came */
	struct agent_image_table *kernel;        /* that came; NULL */
	bool kernel_wanted;                      /* its question is one of those */
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

static void drop_coming(struct agent_tables *tables)
{
	if (!tables->coming)
		return;
	inflateEnd(&tables->stream);
	agent_image_table_free(tables->coming);
	tables->coming = NULL;
	tables->room = 0;
}

static size_t question_size(const struct question *question)
{
	return offsetof(struct question, message) + question->message.size;
}

static struct agent_request *ask_of(struct question *question)
{
	return (struct agent_request *)question->message.payload;
}

/* The oldest ones go until there is room for it. The account's own way to that would come back
 * here. */
static bool take(struct agent_tables *tables, size_t size)
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
	if (take(tables, size))
		guest_account_release(tables->account, size);
}

static bool is_of_kernel(struct question *question)
{
	return ask_of(question)->kind == AGENT_TABLE_KERNEL;
}

static void forget_question(struct agent_tables *tables)
{
	struct question *question = tables->first;

	tables->asking = false;
	if (is_of_kernel(question))
		tables->kernel_wanted = false;
	tables->first = question->next;
	if (!tables->first)
		tables->last = &tables->first;
	tables->waiting--;
	guest_account_release(tables->account, question_size(question));
	free(question);
}

void agent_tables_free(struct agent_tables *tables)
{
	struct agent_image_table *table;

	if (!tables)
		return;
	drop_coming(tables);
	while (tables->first)
		forget_question(tables);
	while ((table = agent_tables_pop(tables)))
		agent_image_table_free(table);
	agent_image_table_free(tables->kernel);
	free(tables);
}

/* With a path of PATH bytes to follow; NULL without memory. */
static struct question *make_question(struct agent_tables *tables, enum agent_table_kind kind,
				      size_t path)
{
	size_t size = (sizeof(struct agent_message) + sizeof(struct agent_request) + path + 1 + 7) /
		      8 * 8;
	struct question *question = calloc(1, offsetof(struct question, message) + size);

	if (!question)
		return NULL;
	question->message = (struct agent_message){ .size = (uint32_t)size, .type = AGENT_REQUEST };
	ask_of(question)->kind = kind;
	if (take(tables, question_size(question)))
		return question;
	free(question);
	return NULL;
}

int agent_tables_request(struct agent_tables *tables, const struct agent_image *image)
{
	size_t path = strnlen(image->path, SIDEBAND_NAME_MAX - 1);
	struct question *question;
	struct agent_request *ask;

	assert(image->build_id_size && image->build_id_size <= sizeof(ask->build_id));
	if (tables->waiting >= AGENT_TABLES_WAITING)
		return -EAGAIN;
	question = make_question(tables, AGENT_TABLE_SYMBOLS, path);
	if (!question)
		return -ENOMEM;
	ask = ask_of(question);
	ask->pid = image->pid;
	ask->start = image->start;
	ask->end = image->end;
	ask->build_id_size = (uint32_t)image->build_id_size;
	memcpy(ask->build_id, image->build_id, image->build_id_size);
	memcpy(ask->path, image->path, path);
	*tables->last = question;
	tables->last = &question->next;
	tables->waiting++;
	return 0;
}

int agent_tables_request_kernel(struct agent_tables *tables, uint64_t modules_hash)
{
	struct question *question, **place = tables->asking ? &tables->first->next : &tables->first;

	if (tables->kernel_wanted)
		return -EALREADY;
	question = make_question(tables, AGENT_TABLE_KERNEL, 0);
	if (!question)
		return -ENOMEM;
	ask_of(question)->start = modules_hash;
	question->next = *place;
	*place = question;
	if (!question->next)
		tables->last = &question->next;
	tables->waiting++;
	tables->kernel_wanted = true;
	return 0;
}

/* COUNT is of images. */
static void give_up(struct agent_tables *tables, uint64_t *count, int error)
{
	if (is_of_kernel(tables->first))
		tables->statistics.kernel_error =
			error == -EALREADY ? 0 : error; /* nothing is new */
	else
		(*count)++;
	drop_coming(tables);
	forget_question(tables);
}

const struct agent_message *agent_tables_next(struct agent_tables *tables, uint64_t time)
{
	if (tables->asking && time > tables->heard + AGENT_TABLES_PATIENCE)
		give_up(tables, &tables->statistics.refused, -ETIMEDOUT);
	if (tables->asking || !tables->first)
		return NULL;
	tables->asking = true;
	tables->heard = time;
	tables->statistics.asked += !is_of_kernel(tables->first);
	ask_of(tables->first)->request = ++tables->request;
	return &tables->first->message;
}

static bool grow(struct agent_tables *tables)
{
	size_t room = tables->room ? 2 * tables->room : ROOM_FIRST;
	struct agent_image_table *larger;

	if (room > AGENT_TABLE_MAX || !take(tables, room - tables->room))
		return false;
	larger = realloc(tables->coming, sizeof(*larger) + room);
	if (!larger) {
		guest_account_release(tables->account, room - tables->room);
		return false;
	}
	if (!tables->coming)
		*larger = (struct agent_image_table){ .account = tables->account };
	larger->taken = room;
	tables->coming = larger;
	tables->room = room;
	return true;
}

static bool begin(struct agent_tables *tables)
{
	const struct agent_request *ask = ask_of(tables->first);

	if (!grow(tables))
		return false;
	tables->stream = (z_stream){ 0 };
	if (inflateInit(&tables->stream) != Z_OK) {
		agent_image_table_free(tables->coming);
		tables->coming = NULL;
		tables->room = 0;
		return false;
	}
	tables->coming->build_id_size = ask->build_id_size;
	memcpy(tables->coming->build_id, ask->build_id, sizeof(ask->build_id));
	return true;
}

/* 1: the stream is at its end; 0: it is not; -EPROTO: it is none, or too large. */
static int unpack(struct agent_tables *tables, struct span data)
{
	z_stream *stream = &tables->stream;
	int result;

	stream->next_in = unconst(data.data);
	stream->avail_in = (unsigned int)data.size;
	do {
		struct agent_image_table *table;

		if (tables->coming->size == tables->room && !grow(tables))
			return -EPROTO;
		table = tables->coming;
		stream->next_out = table->bytes + table->size;
		stream->avail_out = (unsigned int)(tables->room - table->size);
		result = inflate(stream, Z_NO_FLUSH);
		table->size = tables->room - stream->avail_out;
		/* A full table may have more behind it without input; or nothing, which is no
		 * error. */
	} while (result == Z_OK && (stream->avail_in || !stream->avail_out));
	if (result == Z_BUF_ERROR)
		result = Z_OK;
	return result == Z_STREAM_END ? 1 : result == Z_OK ? 0 : -EPROTO;
}

static void finish(struct agent_tables *tables)
{
	struct agent_image_table *table = tables->coming;
	struct agent_image_table *exact = realloc(table, sizeof(*table) + table->size);

	inflateEnd(&tables->stream);
	tables->coming = NULL;
	tables->room = 0;
	table = exact ? exact : table;
	guest_account_release(table->account, table->taken - table->size);
	table->taken = table->size;
	if (is_of_kernel(tables->first)) {
		agent_image_table_free(agent_tables_pop_kernel(tables));
		tables->kernel = table;
		tables->statistics.kernels++;
		tables->statistics.kernel_error = 0;
	} else {
		*tables->end = table;
		tables->end = &table->next;
		tables->statistics.come++;
	}
	forget_question(tables);
}

static bool take_part(struct agent_tables *tables, struct span data, bool end)
{
	int result = 0;

	if (!tables->coming && !begin(tables))
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
		return true; /* of an earlier question */
	tables->heard = time;
	if (part->error) {
		give_up(tables, &tables->statistics.without, part->error);
		return true;
	}
	if (take_part(tables, data, part->flags & AGENT_TABLE_END))
		return true;
	give_up(tables, &tables->statistics.refused, -EPROTO);
	return false;
}

void agent_tables_session_ended(struct agent_tables *tables)
{
	drop_coming(tables);
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
