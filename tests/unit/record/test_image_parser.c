/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing in confined processes gives the same results, and survives their end. */
#include "vmm/record/image_parser.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/unconst.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox_parts.h"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/symbols/elf_symbols.h"

#define NOBODY 65534

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

/* This program, which has symbols and a large .eh_frame. */
struct image {
	int file;
	struct elf_source source;
};

static void open_image(struct image *image)
{
	image->file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	image->source = (struct elf_source){ .read = read_file, .context = &image->file };
	REQUIRE(image->file >= 0);
}

static void start(struct image_parser **parser)
{
	const struct image_parser_user user = { NOBODY, NOBODY };

	signal(SIGPIPE, SIG_IGN); /* a thread of the collector blocks it */
	REQUIRE_EQUAL(image_parser_start(parser, &user, "/proc/self/exe"), 0);
}

#define PROCESSES "$(cat /proc/%d/task/%d/children)"

/* Both processes have these lines in their status. */
static void check_status(const char *line)
{
	char *count = command_output(NULL,
				     "for pid in " PROCESSES "; do cat /proc/$pid/status; done"
				     " | grep -cx '%s'",
				     getpid(), getpid(), line);

	if (strcmp(count, "2\n") != 0)
		FAIL_TEST("%s: %s of 2 processes", line, count);
	free(count);
}

TEST(image_parser, runs_in_processes_without_rights)
{
	struct image_parser *parser;

	if (SANDBOX_SANITIZED)
		SKIP("there are no processes in builds with sanitizers");
	start(&parser);
	/* They confine themselves before the first request. */
	REQUIRE_EQUAL(image_parser_lines(parser, span_of("x", 1), NULL, NULL), 0);
	usleep(100000);
	check_status("NoNewPrivs:\t1");
	check_status("Seccomp:\t2");
	check_status("CapPrm:\t0000000000000000");
	check_status("CapEff:\t0000000000000000");
	if (!geteuid()) {
		check_status("CapBnd:\t0000000000000000");
		check_status("Uid:\t65534\t65534\t65534\t65534");
		check_status("Gid:\t65534\t65534\t65534\t65534");
	}
	image_parser_end(parser);
}

static void wait_for_table(struct image_parser *parser, int error, struct cfi_table **table)
{
	while (error == -EINPROGRESS) {
		usleep(1000);
		error = image_parser_table_result(parser, table);
	}
	REQUIRE_EQUAL(error, 0);
}

TEST(image_parser, makes_the_same_table)
{
	struct cfi_table *table, *expected;
	struct image_parser *parser;
	struct image image;
	uint32_t i;

	start(&parser);
	open_image(&image);
	REQUIRE_EQUAL(cfi_image_compile(&expected, &image.source), 0);
	wait_for_table(parser, image_parser_table(parser, &image.source, &table), &table);
	REQUIRE_EQUAL(table->count, expected->count);
	REQUIRE_EQUAL(table->rule_count, expected->rule_count);
	for (i = 0; i < table->count && table->starts[i] == expected->starts[i]; i++)
		if (table->rule_of[i] != expected->rule_of[i])
			break;
	CHECK_EQUAL(i, table->count);
	CHECK(!memcmp(table->rules, expected->rules, table->rule_count * sizeof(*table->rules)));
	cfi_table_free(table);
	cfi_table_free(expected);
	image_parser_end(parser);
	close(image.file);
}

TEST(image_parser, reads_the_kernel_s_file)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct symbols *symbols, *expected;
	struct symbol symbol, same;
	struct image_parser *parser;
	struct vmlinux_file file;

	start(&parser);
	REQUIRE_EQUAL(image_parser_kernel(parser, &file, &symbols), 0);
	image_parser_end(parser);
	CHECK_EQUAL((int)file.build_id_size, elf_build_id("/proc/self/exe", build_id));
	CHECK(!memcmp(file.build_id, build_id, file.build_id_size));
	CHECK(file.segment_count > 0 && file.segments[0].size > 0);
	REQUIRE_EQUAL(elf_symbols_load(&expected, "/proc/self/exe", ELF_VIRTUAL_ADDRESSES,
				       span_of(NULL, 0)),
		      0);
	REQUIRE_EQUAL(symbols_count(symbols), symbols_count(expected));
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_at(symbols, i, &symbol);
		symbols_at(expected, i, &same);
		REQUIRE(symbol.start == same.start && symbol.end == same.end);
		REQUIRE(symbol.type == same.type && !strcmp(symbol.name, same.name));
	}
	symbols_free(symbols);
	symbols_free(expected);
}

TEST(image_parser, explains_why_it_cannot_read_the_kernel_s_file)
{
	const struct image_parser_user user = { NOBODY, NOBODY };
	struct image_parser *parser;
	struct vmlinux_file file;
	struct symbols *symbols;

	CHECK_EQUAL(image_parser_start(&parser, &user, "/missing"), -ENOENT);
	CHECK(strstr(error_message(), "cannot open /missing: No such file"));
	REQUIRE_EQUAL(image_parser_start(&parser, &user, "/etc/passwd"), 0);
	CHECK_EQUAL(image_parser_kernel(parser, &file, &symbols), -EINVAL);
	CHECK(strstr(error_message(), "/etc/passwd: it is not an ELF file"));
	/* It continues. */
	CHECK_EQUAL(image_parser_lines(parser, span_of("x", 1), NULL, NULL), 0);
	image_parser_end(parser);
}

static void count_line(void *context, const struct perf_map_line *line)
{
	*(unsigned int *)context +=
		line->start == 0x1000 && line->length == 0x20 && !strcmp(line->name, "first");
}

TEST(image_parser, reads_identities_symbols_and_lines)
{
	static const char text[] = "1000 20 first\nnonsense\n2000 20 second\n";
	struct image_identity identity, expected;
	struct image_parser *parser;
	struct image image;
	unsigned int lines = 0;
	struct span table;

	start(&parser);
	open_image(&image);
	image_identity_read(&expected, &image.source);
	image_parser_identity(parser, &image.source, &identity);
	CHECK(image_identity_same(&identity, &expected));
	REQUIRE_EQUAL(image_parser_symbols(parser, &image.source, IMAGE_SYMBOLS_DYNAMIC, &table),
		      0);
	CHECK(table.size > 1000);
	free(unconst(table.data));
	CHECK_EQUAL(image_parser_lines(parser, span_of(text, sizeof(text) - 1), count_line, &lines),
		    0);
	CHECK_EQUAL(lines, 1);
	image_parser_end(parser);
	close(image.file);
}

/* As a guest could cause. */
TEST(image_parser, reports_that_its_processes_have_ended)
{
	struct image_identity identity;
	struct image_parser *parser;
	struct cfi_table *table;
	struct image image;
	struct span symbols;

	if (SANDBOX_SANITIZED)
		SKIP("there are no processes in builds with sanitizers");
	start(&parser);
	open_image(&image);
	free(command_output(NULL, "kill -KILL " PROCESSES " || true", getpid(), getpid()));
	CHECK_EQUAL(image_parser_table(parser, &image.source, &table), -EIO);
	CHECK(!table);
	CHECK_EQUAL(image_parser_symbols(parser, &image.source, IMAGE_SYMBOLS_ALL, &symbols), -EIO);
	image_parser_identity(parser, &image.source, &identity);
	CHECK_EQUAL(identity.build_id_size, 0);
	CHECK_EQUAL(image_parser_lines(parser, span_of("x", 1), NULL, NULL), -EIO);
	CHECK_EQUAL(image_parser_table(parser, &image.source, &table), -EIO);
	image_parser_end(parser);
	close(image.file);
}
