// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/table_sender.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "guest-agent/kernel_table.h"
#include "guest-agent/mapped_build_id.h"
#include "guest-agent/mapped_file.h"
#include "guest-agent/timing.h"
#include "shared/elf_stubs.h"
#include "shared/elf_tables.h"
#include "shared/unconst.h"

/* Of zlib: little memory (32 KiB), little time. */
#define LEVEL       3
#define WINDOW_BITS 12
#define MEMORY      5

/* A part of the file that is to be sent, or, before that, bytes that are there already. */
struct part {
	const void *bytes; /* NULL: in the file */
	uint64_t offset, size;
	bool to_end; /* of the file, which tells no size, and the last part: SIZE is more than is
			taken */
};

enum { PARTS = 7 };

/* On a slow machine: a part rests so many times what it cost, and nobody else misses more of the
 * CPU. */
#define REST 4

static struct {
	bool asked;   /* and not begun */
	bool sending; /* the next four are in use */
	int fd;
	struct stat status; /* of a program or library */
	struct elf_tables tables;
	struct elf_stubs stubs;
	struct kernel_table kernel;
	z_stream stream;
	struct part parts[PARTS];
	unsigned int part; /* the present one; its rest is left in it */
	uint64_t due;      /* ms */
	struct agent_request ask;
	char path[PATH_MAX];
	uint8_t input[4096];
} table;

static void answer_error(uint64_t request, int error, struct output *output)
{
	struct agent_table *message = output_message(output, AGENT_TABLE, sizeof(*message));

	if (!message)
		return; /* the host will ask again, or do without */
	message->request = request;
	message->error = error;
	message->flags = AGENT_TABLE_END;
}

void table_request(const struct agent_message *message, struct output *output)
{
	const struct agent_request *ask = agent_payload(message, sizeof(*ask));
	size_t room;

	if (!ask || ask->build_id_size > BUILD_ID_MAX)
		return;
	if (table.asked || table.sending) {
		answer_error(ask->request, -EBUSY, output);
		return;
	}
	room = agent_payload_size(message) - sizeof(*ask);
	table.asked = true;
	table.ask = *ask;
	table.path[0] = '\0';
	if (room < sizeof(table.path) && memchr(ask->path, '\0', room))
		memcpy(table.path, ask->path, room);
	if (table.due < clock_raw_ms())
		table.due = clock_raw_ms();
}

uint64_t table_due(void)
{
	return table.asked || table.sending ? table.due : UINT64_MAX;
}

void table_cancel(void)
{
	if (table.sending) {
		deflateEnd(&table.stream);
		close(table.fd);
		elf_stubs_free(&table.stubs);
	}
	table.asked = table.sending = false;
}

static bool has_build_id(int fd)
{
	uint8_t build_id[BUILD_ID_MAX];
	size_t size = build_id_read(fd, build_id);

	return size && size == table.ask.build_id_size &&
	       !memcmp(build_id, table.ask.build_id, size);
}

/* Whatever way from WAY on leads to it: a file of that build is the one. */
static int open_file(const char *path, unsigned int way)
{
	const struct mapped_file mapping = { .pid = (pid_t)table.ask.pid,
					     .start = table.ask.start,
					     .end = table.ask.end,
					     .path = path };

	for (; way < MAPPED_FILE_WAYS; way++) {
		int found = mapped_file_name(&mapping, way, &table.status);
		int fd = found < 0 ? found : mapped_file_read(found);

		if (fd < 0)
			continue;
		if (has_build_id(fd))
			return fd;
		close(fd);
	}
	return -ENOENT;
}

/* Of FD, which is the stream's from then on. */
static int begin_stream(int fd)
{
	table.stream = (z_stream){ 0 };
	if (deflateInit2(&table.stream, LEVEL, Z_DEFLATED, WINDOW_BITS, MEMORY,
			 Z_DEFAULT_STRATEGY) != Z_OK) {
		close(fd);
		return -ENOMEM;
	}
	table.fd = fd;
	table.part = 0;
	table.sending = true;
	return 0;
}

static void take_parts_of_file(void)
{
	const struct elf_tables *tables = &table.tables;
	const struct elf_stubs *stubs = &table.stubs;
	const uint32_t symbols = tables->head.symbols, strings = tables->head.strings;

	elf_stubs_append(&table.stubs, &table.tables);
	table.parts[0] = (struct part){ .bytes = &tables->head, .size = sizeof(tables->head) };
	table.parts[1] =
		(struct part){ .bytes = tables->segments,
			       .size = tables->head.segments * sizeof(tables->segments[0]) };
	table.parts[2] = (struct part){ .offset = tables->symbols, .size = symbols };
	table.parts[3] = (struct part){ .bytes = stubs->symbols,
					.size = stubs->count * sizeof(stubs->symbols[0]) };
	table.parts[4] = (struct part){ .offset = tables->strings, .size = strings };
	table.parts[5] = (struct part){ .bytes = stubs->strings, .size = stubs->size };
	table.parts[6] =
		(struct part){ .bytes = tables->sections,
			       .size = tables->section_count * sizeof(tables->sections[0]) };
}

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX &&
			       pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

/* Where distributions install what they strip programs of, where they do (gdb's manual, "Separate
 * Debug Files"). */
static int open_separate_file(void)
{
	static const char directory[] = "/usr/lib/debug/.build-id/";
	char path[sizeof(directory) + 2ul * BUILD_ID_MAX + sizeof("/.debug")];
	size_t length = (size_t)snprintf(path, sizeof(path), "%s", directory);

	for (uint32_t i = 0; i < table.ask.build_id_size; i++)
		length += (size_t)snprintf(path + length, sizeof(path) - length,
					   i ? "%02x" : "%02x/", table.ask.build_id[i]);
	snprintf(path + length, sizeof(path) - length, ".debug");
	return open_file(path, 1);
}

/* In place of FD, of which nothing else is asked: it is stripped, and TABLES has what others may
 * call. */
static int use_separate_file(int fd, struct elf_tables *tables)
{
	struct stat status = table.status;
	int separate = open_separate_file();
	const struct elf_source source = { .read = read_file, .context = &separate };
	struct elf_tables all;

	if (separate < 0 || elf_tables_find(&source, &all) ||
	    all.head.section != AGENT_SYMBOLS_SYMTAB) {
		if (separate >= 0)
			close(separate);
		table.status = status;
		return fd;
	}
	/* Where in the file that is mapped an address lies it does not know. */
	all.head.segments = tables->head.segments;
	memcpy(all.segments, tables->segments, sizeof(all.segments));
	*tables = all;
	close(fd);
	return separate;
}

static int begin_file(void)
{
	int fd = open_file(table.path, 0), error;
	const struct elf_source source = { .read = read_file, .context = &fd };

	if (fd < 0)
		return fd;
	error = elf_tables_find(&source, &table.tables);
	if (error) {
		close(fd);
		return error;
	}
	/* Those that can not be read have no names. */
	elf_stubs_find(&source, &table.stubs);
	if (table.tables.head.section == AGENT_SYMBOLS_DYNSYM)
		fd = use_separate_file(fd, &table.tables);
	take_parts_of_file();
	error = begin_stream(fd);
	if (error)
		elf_stubs_free(&table.stubs);
	return error;
}

static int begin_kernel(void)
{
	const struct kernel_table *kernel = &table.kernel;
	size_t modules;
	int fd;

	if (table.ask.start && table.ask.start == kernel_table_hash())
		return -EALREADY;
	fd = kernel_table_open_symbols();
	if (fd < 0)
		return fd;
	kernel_table_read(&table.kernel);
	modules = kernel->head.modules * sizeof(kernel->modules[0]);
	table.parts[0] = (struct part){ .bytes = &kernel->head, .size = sizeof(kernel->head) };
	table.parts[1] = (struct part){ .bytes = kernel->modules, .size = modules };
	table.parts[2] =
		(struct part){ .size = AGENT_TABLE_MAX - modules - sizeof(kernel->head) + 1,
			       .to_end = true };
	for (unsigned int i = 3; i < PARTS; i++)
		table.parts[i] = (struct part){ 0 };
	return begin_stream(fd);
}

static int begin(void)
{
	if (table.ask.kind == AGENT_TABLE_KERNEL)
		return begin_kernel();
	return table.ask.kind == AGENT_TABLE_SYMBOLS ? begin_file() : -EINVAL;
}

/* The next bytes into the stream's input, at most SIZE; 0 at the end, negative errno. */
static ssize_t fill(size_t size)
{
	struct part *part;
	ssize_t got;

	while (table.part < PARTS && !table.parts[table.part].size)
		table.part++;
	if (table.part == PARTS)
		return 0;
	part = &table.parts[table.part];
	size = size < part->size ? size : part->size;
	if (part->bytes) {
		table.stream.next_in = unconst(part->bytes + part->offset);
		got = (ssize_t)size;
	} else {
		size = size < sizeof(table.input) ? size : sizeof(table.input);
		got = pread(table.fd, table.input, size, (off_t)part->offset);
		table.stream.next_in = table.input;
	}
	if (!got && part->to_end)
		return 0;
	if (got <= 0)
		return got ? -errno : -ESTALE; /* it became shorter */
	if (part->to_end && (size_t)got == part->size)
		return -EFBIG;
	part->offset += (size_t)got;
	part->size -= (size_t)got;
	table.stream.avail_in = (unsigned int)got;
	return got;
}

/* 1: the stream is at its end; 0: TO is full, or enough was taken; negative errno. */
static int compress_part(uint8_t *to, size_t room)
{
	size_t left = TABLE_PART;

	table.stream.next_out = to;
	table.stream.avail_out = (unsigned int)room;
	while (table.stream.avail_out) {
		ssize_t got = 1;
		int result;

		if (!table.stream.avail_in) {
			if (!left)
				return 0;
			got = fill(left);
			if (got < 0)
				return (int)got;
			left -= (size_t)got;
		}
		result = deflate(&table.stream, got ? Z_NO_FLUSH : Z_FINISH);
		if (result == Z_STREAM_END)
			return 1;
		if (result != Z_OK && result != Z_BUF_ERROR)
			return -EIO;
	}
	return 0;
}

/*
 * Was the file changed while it was read? Then its build id says nothing of what was read. Of the
 * kernel: are other modules loaded now?
 */
static bool has_changed(void)
{
	struct stat now;

	if (table.ask.kind == AGENT_TABLE_KERNEL)
		return kernel_table_hash() != table.kernel.head.modules_hash;
	return fstat(table.fd, &now) || now.st_size != table.status.st_size ||
	       now.st_mtim.tv_sec != table.status.st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != table.status.st_mtim.tv_nsec;
}

static void send_part(struct output *output)
{
	struct agent_table *message =
		output_message(output, AGENT_TABLE, sizeof(*message) + TABLE_PART);
	int result;

	if (!message)
		return;
	result = compress_part(message->data, TABLE_PART);
	message->request = table.ask.request;
	message->size = TABLE_PART - table.stream.avail_out;
	if (result > 0 && has_changed())
		result = -ESTALE;
	if (result < 0)
		message->error = result;
	if (result)
		message->flags = AGENT_TABLE_END;
	memset(message->data + message->size, 0, TABLE_PART - message->size);
	output_shorten(output, message, sizeof(*message) + message->size);
	if (result)
		table_cancel();
}

bool table_step(struct output *output)
{
	uint64_t begun = clock_cpu(), rest;
	int error = 0;

	if (table_due() > clock_raw_ms() || !output_empty(output))
		return false;
	if (table.asked) {
		table.asked = false;
		error = begin();
	}
	if (error)
		answer_error(table.ask.request, error, output);
	else
		send_part(output);
	rest = REST * (clock_cpu() - begun) / NS_PER_MS;
	table.due = clock_raw_ms() + (rest > TABLE_INTERVAL_MS ? rest : TABLE_INTERVAL_MS);
	return true;
}
