/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a process that parses images and was taken over. Input: the number of the request,
 * then what the process sends.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/unconst.h"
#include "vmm/record/image_messages.h"
#include "vmm/record/image_parser.h"

#define INPUT_MAX 65536u /* fits into a socket, as do the answers to so many reads */
#define READ_MAX  64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_image(void *context, uint64_t offset, void *to, size_t size)
{
	(void)context;
	if (size > READ_MAX || offset > UINT32_MAX)
		return -EFAULT;
	memset(to, (int)(offset & 0xff), size);
	return 0;
}

static void check_line(void *context, const struct perf_map_line *line)
{
	(void)context;
	if (!line->length || line->start + line->length < line->start ||
	    !memchr(line->name, 0, sizeof(line->name)))
		abort();
}

static void check_table(struct image_parser *parser, const struct elf_source *image)
{
	struct cfi_table *table;
	int error = image_parser_table(parser, image, &table);

	if (error == -EINPROGRESS)
		error = image_parser_table_result(parser, &table);
	if (!error && (!table || !cfi_table_is_valid(table)))
		abort();
	for (uint64_t i = 0; !error && i < 4096; i++)
		cfi_table_find(table, i << 12);
	cfi_table_free(table);
}

static void request(struct image_parser *parser, unsigned int number)
{
	const struct elf_source image = { .read = read_image };
	struct image_identity identity;
	struct symbols *symbols;
	struct vmlinux_file file;
	struct span table;

	switch (number % 5) {
	case 0:
		check_table(parser, &image);
		break;
	case 1:
		image_parser_identity(parser, &image, &identity);
		if (identity.build_id_size > IMAGE_BUILD_ID_MAX)
			abort();
		break;
	case 2:
		if (!image_parser_symbols(parser, &image, IMAGE_SYMBOLS_ALL, &table))
			free(unconst(table.data));
		break;
	case 4:
		if (image_parser_kernel(parser, &file, &symbols))
			break;
		if (file.build_id_size > sizeof(file.build_id) ||
		    file.segment_count > ELF_SEGMENTS_MAX)
			abort();
		symbols_free(symbols);
		break;
	default:
		image_parser_lines(parser, span_of("1 2 a\n", 6), check_line, NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_parser *parser;
	int ends[2], fds[2];

	if (!size || size > INPUT_MAX)
		return 0;
	signal(SIGPIPE, SIG_IGN);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		abort();
	fds[0] = ends[0];
	fds[1] = dup(ends[0]);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	if (write(ends[1], data + 1, size - 1) != (ssize_t)size - 1)
		abort();
	shutdown(ends[1], SHUT_WR);
	parser = image_parser_adopt(fds);
	if (!parser)
		abort();
	request(parser, *data);
	image_parser_end(parser);
	close(ends[1]);
	return 0;
}
