/* SPDX-License-Identifier: Apache-2.0 */
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

/* zlib settings for little memory (32 KiB) and CPU time. */
#define LEVEL       3
#define WINDOW_BITS 12
#define MEMORY      5

/* A range of the file, or of memory. */
struct part {
	const void *bytes; /* NULL: in the file */
	uint64_t offset, size;
	bool to_end; /* last part, up to the end of a file of unknown size; SIZE is the limit */
};

enum { PARTS = 7 };

/* Pause after a part in multiples of its CPU time: bounds the CPU share on slow machines. */
#define REST 4

static struct {
	bool requested; /* and not started */
	bool sending;   /* fd, stubs and stream are in use */
	int fd;
	struct stat status; /* of a program or library */
	struct elf_tables tables;
	struct elf_stubs stubs;
	struct kernel_table kernel;
	z_stream stream;
	struct part parts[PARTS];
	unsigned int part; /* the current one; its offset and size are what is left */
	uint64_t due;      /* ms */
	struct agent_request request;
	char path[PATH_MAX];
	uint8_t input[4096];
} table;

static void answer_error(uint64_t request, int error, struct output *output)
{
	struct agent_table *message = output_message(output, AGENT_TABLE, sizeof(*message));

	if (!message)
		return; /* the host's request times out */
	message->request = request;
	message->error = error;
	message->flags = AGENT_TABLE_END;
}

void table_request(const struct agent_message *message, struct output *output)
{
	const struct agent_request *request = agent_payload(message, sizeof(*request));
	size_t room;

	if (!request || request->build_id_size > BUILD_ID_MAX)
		return;
	if (table.requested || table.sending) {
		answer_error(request->request, -EBUSY, output);
		return;
	}
	room = agent_payload_size(message) - sizeof(*request);
	table.requested = true;
	table.request = *request;
	table.path[0] = '\0';
	if (room < sizeof(table.path) && memchr(request->path, '\0', room))
		memcpy(table.path, request->path, room);
	if (table.due < clock_raw_ms())
		table.due = clock_raw_ms();
}

uint64_t table_due(void)
{
	return table.requested || table.sending ? table.due : UINT64_MAX;
}

void table_cancel(void)
{
	if (table.sending) {
		deflateEnd(&table.stream);
		close(table.fd);
		elf_stubs_free(&table.stubs);
	}
	table.requested = table.sending = false;
}

static bool has_build_id(int fd)
{
	uint8_t build_id[BUILD_ID_MAX];
	size_t size = build_id_read(fd, build_id);

	return size && size == table.request.build_id_size &&
	       !memcmp(build_id, table.request.build_id, size);
}

/* Tries the ways from WAY on; the build id verifies the file. */
static int open_file(const char *path, unsigned int way)
{
	const struct mapped_file mapping = { .pid = (pid_t)table.request.pid,
					     .start = table.request.start,
					     .end = table.request.end,
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

/* Takes ownership of FD. */
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

static void set_file_parts(void)
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

/* Where distributions install separate debug files (gdb's manual, "Separate Debug Files"). */
static int open_separate_file(void)
{
	static const char directory[] = "/usr/lib/debug/.build-id/";
	char path[sizeof(directory) + 2ul * BUILD_ID_MAX + sizeof("/.debug")];
	size_t length = (size_t)snprintf(path, sizeof(path), "%s", directory);

	for (uint32_t i = 0; i < table.request.build_id_size; i++)
		length += (size_t)snprintf(path + length, sizeof(path) - length,
					   i ? "%02x" : "%02x/", table.request.build_id[i]);
	snprintf(path + length, sizeof(path) - length, ".debug");
	return open_file(path, 1);
}

/* For a stripped file with .dynsym only: uses its separate debug file instead and closes FD, else
 * returns FD. */
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
	/* A debug file's segments have no valid file offsets: keep those of the mapped file. */
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
	/* Without them PLT stubs stay unsymbolized. */
	elf_stubs_find(&source, &table.stubs);
	if (table.tables.head.section == AGENT_SYMBOLS_DYNSYM)
		fd = use_separate_file(fd, &table.tables);
	set_file_parts();
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

	if (table.request.start && table.request.start == kernel_table_hash())
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
	if (table.request.kind == AGENT_TABLE_KERNEL)
		return begin_kernel();
	return table.request.kind == AGENT_TABLE_SYMBOLS ? begin_file() : -EINVAL;
}

/* Sets the stream's input to the next bytes, at most SIZE; 0 at the end, negative errno. */
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
		return got ? -errno : -ESTALE; /* the file was truncated */
	if (part->to_end && (size_t)got == part->size)
		return -EFBIG;
	part->offset += (size_t)got;
	part->size -= (size_t)got;
	table.stream.avail_in = (unsigned int)got;
	return got;
}

/* 1 at the end of the stream; 0 if TO is full or the part complete; negative errno. */
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

/* True if the file changed while it was read, so that its build id may not match the content; for
 * the kernel, if other modules are loaded now.
 */
static bool has_changed(void)
{
	struct stat now;

	if (table.request.kind == AGENT_TABLE_KERNEL)
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
	message->request = table.request.request;
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
	if (table.requested) {
		table.requested = false;
		error = begin();
	}
	if (error)
		answer_error(table.request.request, error, output);
	else
		send_part(output);
	rest = REST * (clock_cpu() - begun) / NS_PER_MS;
	table.due = clock_raw_ms() + (rest > TABLE_INTERVAL_MS ? rest : TABLE_INTERVAL_MS);
	return true;
}
