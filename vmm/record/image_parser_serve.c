/* SPDX-License-Identifier: Apache-2.0 */
/* The confined side of a parser of images. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/bytes.h"
#include "shared/elf_stubs.h"
#include "shared/elf_tables.h"
#include "shared/read_file.h"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/record/image_messages.h"
#include "vmm/record/image_parser.h"
#include "vmm/record/vmlinux_file.h"
#include "vmm/symbols/image_file.h"

static bool receive(int fd, void *to, size_t size)
{
	ssize_t part;

	for (size_t at = 0; at < size; at += (size_t)part) {
		part = read(fd, (uint8_t *)to + at, size - at);
		if (part <= 0)
			return false;
	}
	return true;
}

static bool transmit(int fd, const void *from, size_t size)
{
	return !write_descriptor(fd, from, size);
}

static bool answer(int fd, enum image_message_type type, int error, const void *data, size_t size)
{
	const struct image_message message = { .type = type, .error = error, .size = size };

	return transmit(fd, &message, sizeof(message)) && (error || transmit(fd, data, size));
}

/* --- the image --------------------------------------------------------------------------- */

static int read_part(int fd, uint64_t offset, void *to, size_t size)
{
	const struct image_message wanted = { .type = IMAGE_READ, .number = offset, .size = size };
	struct image_message found;

	if (!transmit(fd, &wanted, sizeof(wanted)) || !receive(fd, &found, sizeof(found)))
		return -EFAULT;
	return !found.error && receive(fd, to, size) ? 0 : -EFAULT;
}

static int read_image(void *context, uint64_t offset, void *to, size_t size)
{
	int error = offset > UINT64_MAX - size ? -EFAULT : 0;

	for (size_t at = 0; at < size && !error; at += IMAGE_CHUNK)
		error = read_part(*(int *)context, offset + at, (uint8_t *)to + at,
				  size - at < IMAGE_CHUNK ? size - at : IMAGE_CHUNK);
	return error;
}

/* --- requests ------------------------------------------------------------------------ */

static bool send_table(int fd, const struct cfi_table *table)
{
	const struct image_table_head head = { table->count, table->rule_count };
	const size_t starts = table->count * sizeof(table->starts[0]),
		     rules_of = table->count * sizeof(table->rule_of[0]),
		     rules = table->rule_count * sizeof(table->rules[0]);
	const struct image_message message = { .type = IMAGE_RESULT,
					       .size = sizeof(head) + starts + rules_of + rules };

	return transmit(fd, &message, sizeof(message)) && transmit(fd, &head, sizeof(head)) &&
	       transmit(fd, table->starts, starts) && transmit(fd, table->rule_of, rules_of) &&
	       transmit(fd, table->rules, rules);
}

static bool compile(int fd, const struct cfi_image *image)
{
	const struct image_message message = { .type = IMAGE_COMPILING,
					       .size = cfi_image_size(image) };
	struct cfi_table *table;
	bool done;
	int error;

	if (!transmit(fd, &message, sizeof(message)))
		return false;
	error = cfi_image_make(&table, image);
	if (error)
		return answer(fd, IMAGE_RESULT, error, NULL, 0);
	done = send_table(fd, table);
	cfi_table_free(table);
	return done;
}

static bool make_table(int fd, const struct elf_source *source, bool soon)
{
	struct cfi_image *image;
	int error = cfi_image_read(&image, source);
	bool done;

	if (error)
		return answer(fd, IMAGE_RESULT, error, NULL, 0);
	if (soon && cfi_image_size(image) > IMAGE_PARSER_SOON)
		done = answer(fd, IMAGE_RESULT, -EBUSY, NULL, 0);
	else
		done = compile(fd, image);
	cfi_image_free(image);
	return done;
}

static bool read_identity(int fd, const struct elf_source *source)
{
	struct image_identity identity;

	memset(&identity, 0, sizeof(identity));
	image_identity_read(&identity, source);
	return answer(fd, IMAGE_RESULT, 0, &identity, sizeof(identity));
}

static int find_symbols(const struct elf_source *source, uint64_t which, struct elf_tables *tables)
{
	int error = which == IMAGE_SYMBOLS_ALL       ? elf_tables_find(source, tables)
		    : which == IMAGE_SYMBOLS_DYNAMIC ? elf_tables_find_dynamic(source, tables)
						     : elf_tables_find_segments(source, tables);

	if (!error &&
	    tables->head.symbols + (uint64_t)tables->head.strings > IMAGE_PARSER_SYMBOLS_MAX)
		error = -EFBIG;
	return error;
}

static bool read_symbols(int fd, const struct elf_source *source, uint64_t which)
{
	struct elf_stubs stubs = { 0 };
	struct bytes bytes = { 0 };
	struct elf_tables tables;
	int error = find_symbols(source, which, &tables);
	bool done;

	/* Without its whole identity in memory, an image gets no symbols. */
	if (!error)
		elf_stubs_find(source, &stubs);
	if (!error)
		error = image_table_read(&bytes, source, &tables, &stubs);
	done = answer(fd, IMAGE_RESULT, error, bytes.data, bytes.size);
	elf_stubs_free(&stubs);
	free(bytes.data);
	return done;
}

static bool parse_lines(int fd, uint64_t size)
{
	struct perf_map_line line;
	struct bytes lines = { 0 };
	uint8_t *text = size <= IMAGE_CHUNK ? malloc(size + 1) : NULL;
	struct span rest = span_of(text, size);
	bool done = text && receive(fd, text, size);

	while (done && perf_map_next(&rest, &line)) {
		struct image_line found = { .start = line.start,
					    .length = line.length,
					    .name_size = (uint32_t)strlen(line.name) + 1 };

		bytes_add(&lines, &found, sizeof(found));
		bytes_add(&lines, line.name, found.name_size);
	}
	if (done)
		done = answer(fd, IMAGE_RESULT, lines.failed ? -ENOMEM : 0, lines.data, lines.size);
	free(lines.data);
	free(text);
	return done;
}

static bool flatten(int fd, int file)
{
	struct bytes flat;
	int error = vmlinux_file_flatten(&flat, file);
	bool done = answer(fd, IMAGE_RESULT, error, flat.data, flat.size);

	free(flat.data);
	return done;
}

static bool serve(int fd, int file, const struct image_message *request)
{
	const struct elf_source source = { .read = read_image, .context = &fd };

	switch (request->type) {
	case IMAGE_TABLE:
		return make_table(fd, &source, request->number);
	case IMAGE_IDENTITY:
		return read_identity(fd, &source);
	case IMAGE_SYMBOLS:
		return read_symbols(fd, &source, request->number);
	case IMAGE_LINES:
		return parse_lines(fd, request->size);
	case IMAGE_KERNEL:
		return flatten(fd, file);
	default:
		return false;
	}
}

void image_parser_serve(int fd, int file)
{
	struct image_message request;

	while (receive(fd, &request, sizeof(request)) && serve(fd, file, &request))
		;
}
