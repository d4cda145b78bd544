/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/image_parser.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_start.h"
#include "vmm/disk/sandbox_work.h"
#include "vmm/record/image_messages.h"

/* ms that a request may take, and a large table. Some ms are normal, but a machine may be busy, and
 * without the process the guest's functions stay unsymbolized. */
#define TIME_MAX  60000
#define TABLE_MAX 120000
/* s of CPU time of a process in all. */
#define CPU_MAX 3600
/* Bytes of a process: the largest .eh_frame, its table, and room for that to grow. */
#define MEMORY_MAX (512ull << 20)
/* Bytes of a result with symbols, or lines. */
#define RESULT_MAX (16u << 20)
/* ms that a process may take to end. */
#define END_MS 1000

struct channel {
	int fd;        /* -1: the parser has ended */
	pid_t process; /* 0: it is THREAD, if any */
	pthread_t thread;
	bool has_thread;
	bool busy;         /* a table is in progress */
	uint64_t deadline; /* ms of CLOCK_MONOTONIC */
};

/* A large table takes seconds, so there are two. */
struct image_parser {
	struct channel tables, others;
	const char *kernel; /* the path of its file; NULL */
	bool reported;
};

/* --- start and end ---------------------------------------------------------------------- */

/* FILES: the socket, and the kernel's file. */
static int serve_process(void *context)
{
	const int *files = context;

	image_parser_serve(files[0], files[1]);
	return 0;
}

static void *serve_thread(void *context)
{
	int fd = *(int *)context;

	free(context);
	image_parser_serve(fd, -1);
	close(fd);
	return NULL;
}

/* FILE: the kernel's; -1: none. */
static int start_process(struct channel *channel, int end, int file,
			 const struct image_parser_user *user)
{
	int files[] = { end, file };
	const struct sandbox_work work = { .input = "the guest's programs",
					   .uid = user->uid,
					   .gid = user->gid,
					   .seconds = CPU_MAX,
					   .memory_max = MEMORY_MAX,
					   .files = files,
					   .file_count = file < 0 ? 1 : 2,
					   .detached = true,
					   .keeps_signals = true };
	int error = sandbox_work_start(&work, serve_process, files, &channel->process);

	close(end);
	return error;
}

static int start_thread(struct channel *channel, int end)
{
	int *fd = malloc(sizeof(*fd)), error = -ENOMEM;

	if (fd) {
		*fd = end;
		error = thread_start(&channel->thread, "parser", serve_thread, fd);
	}
	channel->has_thread = !error;
	if (!error)
		return 0;
	free(fd);
	close(end);
	return error_set(error, "cannot start a thread that reads the guest's programs: %s",
			 strerror(-error));
}

static int start(struct channel *channel, const struct image_parser_user *user, int file)
{
	int ends[2], error;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ||
	    fcntl(ends[0], F_SETFL, O_NONBLOCK))
		return error_set(-errno, "cannot read the guest's programs: no socket: %m");
	error = user ? start_process(channel, ends[1], file, user) : start_thread(channel, ends[1]);
	if (error)
		close(ends[0]);
	else
		channel->fd = ends[0];
	return error;
}

/* Opening a FIFO must not block. */
static int open_kernel(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? error_set(-errno, "cannot open %s: %m", path) : fd;
}

int image_parser_start(struct image_parser **result, const struct image_parser_user *user,
		       const char *kernel)
{
	struct image_parser *parser = calloc(1, sizeof(*parser));
	int error, file = -1;

	if (!parser)
		return error_set(-ENOMEM, "no memory to read the guest's programs");
	parser->tables.fd = parser->others.fd = -1;
	parser->kernel = kernel;
	if (!sandbox_work_is_possible())
		user = NULL;
	error = kernel && (file = open_kernel(kernel)) < 0 ? file : 0;
	if (!error)
		error = start(&parser->tables, user, -1);
	if (!error)
		error = start(&parser->others, user, file);
	if (file >= 0)
		close(file);
	if (error)
		image_parser_end(parser);
	else
		*result = parser;
	return error;
}

struct image_parser *image_parser_adopt(const int fds[2])
{
	struct image_parser *parser = calloc(1, sizeof(*parser));

	if (parser) {
		parser->tables.fd = fds[0];
		parser->others.fd = fds[1];
		parser->kernel = "the kernel's file";
		parser->reported = true;
	}
	return parser;
}

/* A process that hangs ends with our thread, or by its limit of CPU time, if it has another user:
 * we may have no right to kill it. */
static void end_process(const struct channel *channel)
{
	uint64_t until = clock_ms(CLOCK_MONOTONIC) + END_MS;

	kill(channel->process, SIGKILL);
	while (!waitpid(channel->process, NULL, WNOHANG) && clock_ms(CLOCK_MONOTONIC) < until)
		usleep(1000);
}

static void end(struct channel *channel)
{
	if (channel->fd < 0)
		return;
	close(channel->fd);
	channel->fd = -1;
	if (channel->process)
		end_process(channel);
	else if (channel->has_thread)
		pthread_join(channel->thread, NULL);
}

void image_parser_end(struct image_parser *parser)
{
	if (!parser)
		return;
	end(&parser->tables);
	end(&parser->others);
	free(parser);
}

/* It crashed, hangs, or was taken over. Returns -EIO. */
static int fail(struct image_parser *parser, struct channel *channel)
{
	if (!parser->reported)
		log_warning("the process that reads the guest's programs failed: their functions "
			    "stay unsymbolized from now on");
	parser->reported = true;
	end(channel);
	return -EIO;
}

/* --- messages ---------------------------------------------------------------------------- */

static bool wait_for(const struct channel *channel, short event)
{
	struct pollfd ready = { .fd = channel->fd, .events = event };
	uint64_t now = clock_ms(CLOCK_MONOTONIC);

	return now < channel->deadline && poll(&ready, 1, (int)(channel->deadline - now)) > 0;
}

static bool may_wait(ssize_t result)
{
	return result < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool receive(const struct channel *channel, void *to, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t part = read(channel->fd, (uint8_t *)to + at, size - at);

		if (part > 0)
			at += (size_t)part;
		else if (!may_wait(part) || !wait_for(channel, POLLIN))
			return false;
	}
	return true;
}

static bool transmit(const struct channel *channel, const void *from, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t part = write(channel->fd, (const uint8_t *)from + at, size - at);

		if (part > 0)
			at += (size_t)part;
		else if (!may_wait(part) || !wait_for(channel, POLLOUT))
			return false;
	}
	return true;
}

static bool answer_read(const struct channel *channel, const struct image_message *wanted,
			const struct elf_source *image)
{
	struct image_message message = { .type = IMAGE_DATA };
	uint8_t bytes[IMAGE_CHUNK];

	if (!image || wanted->size > sizeof(bytes))
		return false;
	message.error = image->read(image->context, wanted->number, bytes, wanted->size);
	message.size = message.error ? 0 : wanted->size;
	return transmit(channel, &message, sizeof(message)) &&
	       transmit(channel, bytes, message.size);
}

/* Provides parts of IMAGE until another message arrives. */
static bool await(const struct channel *channel, const struct elf_source *image,
		  struct image_message *message)
{
	bool received;

	while ((received = receive(channel, message, sizeof(*message))) &&
	       message->type == IMAGE_READ)
		if (!answer_read(channel, message, image))
			return false;
	return received;
}

static bool request(struct channel *channel, enum image_message_type type, uint64_t number,
		    struct span data)
{
	const struct image_message message = { .type = type, .number = number, .size = data.size };

	channel->deadline = clock_ms(CLOCK_MONOTONIC) + TIME_MAX;
	return channel->fd >= 0 && transmit(channel, &message, sizeof(message)) &&
	       transmit(channel, data.data, data.size);
}

/* Sends a request, and waits for its RESULT: its size, or error. False: the parser failed. */
static bool ask(struct channel *channel, enum image_message_type type, uint64_t number,
		struct span data, const struct elf_source *image, struct image_message *result)
{
	const uint64_t size_max = type == IMAGE_KERNEL ? VMLINUX_FILE_FLAT_MAX : RESULT_MAX;

	return request(channel, type, number, data) && await(channel, image, result) &&
	       result->type == IMAGE_RESULT && result->size <= size_max && result->error <= 0 &&
	       result->error > -4096;
}

/* --- tables ------------------------------------------------------------------------------ */

static bool receive_rows(const struct channel *channel, struct cfi_table *table)
{
	size_t starts = table->count * sizeof(table->starts[0]),
	       rules_of = table->count * sizeof(table->rule_of[0]),
	       rules = table->rule_count * sizeof(table->rules[0]);

	table->starts = malloc(starts + 1);
	table->rule_of = malloc(rules_of + 1);
	table->rules = malloc(rules + 1);
	return table->starts && table->rule_of && table->rules &&
	       receive(channel, table->starts, starts) &&
	       receive(channel, table->rule_of, rules_of) &&
	       receive(channel, table->rules, rules) && cfi_table_is_valid(table);
}

/* -EIO: the parser failed. */
static int receive_table(const struct channel *channel, const struct image_message *message,
			 struct cfi_table **result)
{
	struct image_table_head head;
	struct cfi_table *table;

	if (message->type != IMAGE_RESULT || message->error > 0 || message->error < -4095)
		return -EIO;
	if (message->error)
		return message->error;
	if (!receive(channel, &head, sizeof(head)) || head.count > CFI_ROWS_MAX ||
	    head.rule_count > CFI_RULES_MAX)
		return -EIO;
	table = calloc(1, sizeof(*table));
	if (!table)
		return -EIO;
	table->count = head.count;
	table->rule_count = head.rule_count;
	if (receive_rows(channel, table)) {
		*result = table;
		return 0;
	}
	cfi_table_free(table);
	return -EIO;
}

static int finish_table(struct image_parser *parser, struct channel *channel,
			struct cfi_table **table)
{
	struct image_message message;
	int error = await(channel, NULL, &message) ? receive_table(channel, &message, table) : -EIO;

	channel->busy = false;
	return error == -EIO ? fail(parser, channel) : error;
}

int image_parser_table(struct image_parser *parser, const struct elf_source *image,
		       struct cfi_table **table)
{
	struct channel *channel = parser->tables.busy ? &parser->others : &parser->tables;
	struct image_message message;

	*table = NULL;
	if (channel->fd < 0)
		return -EIO;
	if (!request(channel, IMAGE_TABLE, parser->tables.busy, span_of(NULL, 0)) ||
	    !await(channel, image, &message))
		return fail(parser, channel);
	if (message.type == IMAGE_RESULT && message.error < 0 && message.error > -4096)
		return message.error;
	if (message.type != IMAGE_COMPILING)
		return fail(parser, channel);
	if (message.size <= IMAGE_PARSER_SOON || channel == &parser->others)
		return finish_table(parser, channel, table);
	channel->busy = true;
	channel->deadline = clock_ms(CLOCK_MONOTONIC) + TABLE_MAX;
	return -EINPROGRESS;
}

int image_parser_table_result(struct image_parser *parser, struct cfi_table **table)
{
	struct channel *channel = &parser->tables;
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };

	*table = NULL;
	if (!channel->busy)
		return -EINPROGRESS;
	if (poll(&ready, 1, 0) <= 0 && clock_ms(CLOCK_MONOTONIC) < channel->deadline)
		return -EINPROGRESS;
	channel->deadline = clock_ms(CLOCK_MONOTONIC) + TIME_MAX;
	return finish_table(parser, channel, table);
}

/* --- others ------------------------------------------------------------------------------ */

void image_parser_identity(struct image_parser *parser, const struct elf_source *image,
			   struct image_identity *identity)
{
	struct channel *channel = &parser->others;
	struct image_message result;

	memset(identity, 0, sizeof(*identity));
	if (channel->fd < 0)
		return;
	if (ask(channel, IMAGE_IDENTITY, 0, span_of(NULL, 0), image, &result) && !result.error &&
	    result.size == sizeof(*identity) && receive(channel, identity, sizeof(*identity)) &&
	    identity->build_id_size <= IMAGE_BUILD_ID_MAX)
		return;
	memset(identity, 0, sizeof(*identity));
	fail(parser, channel);
}

/* Receives the SIZE bytes of a result; the caller frees them. NULL: the parser failed. */
static uint8_t *receive_all(const struct channel *channel, uint64_t size)
{
	uint8_t *data = malloc(size + 1);

	if (data && receive(channel, data, size))
		return data;
	free(data);
	return NULL;
}

int image_parser_symbols(struct image_parser *parser, const struct elf_source *image,
			 enum image_symbols_of which, struct span *table)
{
	struct channel *channel = &parser->others;
	struct image_message result;
	uint8_t *data;

	*table = span_of(NULL, 0);
	if (channel->fd < 0)
		return -EIO;
	if (!ask(channel, IMAGE_SYMBOLS, which, span_of(NULL, 0), image, &result))
		return fail(parser, channel);
	if (result.error)
		return result.error;
	data = receive_all(channel, result.size);
	if (!data)
		return fail(parser, channel);
	*table = span_of(data, result.size);
	return 0;
}

/* The flat form of the kernel's file, whose data the caller frees. */
static int flatten(struct image_parser *parser, struct bytes *flat)
{
	struct channel *channel = &parser->others;
	struct image_message result;
	int fd, error;

	if (channel->has_thread) {
		fd = open_kernel(parser->kernel);
		error = fd < 0 ? fd : vmlinux_file_flatten(flat, fd);
		if (fd >= 0)
			close(fd);
		return error;
	}
	if (channel->fd < 0)
		return -EIO;
	if (!ask(channel, IMAGE_KERNEL, 0, span_of(NULL, 0), NULL, &result))
		return fail(parser, channel);
	if (result.error)
		return result.error;
	flat->data = receive_all(channel, result.size);
	flat->size = result.size;
	return flat->data ? 0 : fail(parser, channel);
}

static int explain(int error, const char *path)
{
	const char *why = error == -ENODATA  ? "it has no symbols: it is stripped"
			  : error == -EINVAL ? "it is not an ELF file"
			  : error == -EFBIG  ? "its symbol table is too large"
			  : error == -EIO    ? "the process that reads it failed"
					     : strerror(-error);

	return error ? error_set(error, "cannot read the symbols of %s: %s", path, why) : 0;
}

int image_parser_kernel(struct image_parser *parser, struct vmlinux_file *file,
			struct symbols **symbols)
{
	struct bytes flat = { 0 };
	int error = flatten(parser, &flat);

	if (!error)
		error = vmlinux_file_parse(span_of(flat.data, flat.size), file, symbols);
	free(flat.data);
	return explain(error, parser->kernel);
}

/* True: LINE is the next of LINES. */
static bool next_line(struct span *lines, struct perf_map_line *line)
{
	struct image_line head;
	struct span name;

	if (!span_copy(*lines, 0, &head, sizeof(head)) || !head.name_size ||
	    head.name_size > PERF_MAP_NAME_MAX || !head.length ||
	    head.start > UINT64_MAX - head.length ||
	    !span_part(*lines, sizeof(head), head.name_size, &name))
		return false;
	line->start = head.start;
	line->length = head.length;
	memcpy(line->name, name.data, name.size);
	line->name[name.size - 1] = '\0';
	*lines = span_of(name.data + name.size, lines->size - sizeof(head) - name.size);
	return true;
}

int image_parser_lines(struct image_parser *parser, struct span text,
		       void (*each)(void *context, const struct perf_map_line *line), void *context)
{
	struct channel *channel = &parser->others;
	struct image_message result;
	struct perf_map_line line;
	struct span lines;
	uint8_t *data;

	if (channel->fd < 0)
		return -EIO;
	data = ask(channel, IMAGE_LINES, 0, text, NULL, &result) && !result.error
		       ? receive_all(channel, result.size)
		       : NULL;
	if (!data)
		return fail(parser, channel);
	for (lines = span_of(data, result.size); next_line(&lines, &line);)
		each(context, &line);
	free(data);
	return 0;
}
