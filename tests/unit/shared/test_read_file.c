/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/read_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

static const char *const path = "build/read-file";

static void write_bytes(size_t size)
{
	FILE *file = fopen(path, "w");

	REQUIRE(file);
	for (size_t i = 0; i < size; i++)
		fputc('a' + (int)(i % 26), file);
	fclose(file);
}

TEST(read_file, reads_up_to_the_limit)
{
	char *text;
	size_t size;

	write_bytes(100000);
	REQUIRE_EQUAL(read_file(path, 100000, &text, &size), 0);
	CHECK_EQUAL(size, 100000);
	CHECK_EQUAL(strlen(text), size);
	CHECK_EQUAL(text[99999], 'a' + 99999 % 26);
	free(text);
	CHECK_EQUAL(read_file(path, 99999, &text, &size), -EFBIG);
	unlink(path);
	CHECK_EQUAL(read_file(path, 99999, &text, &size), -ENOENT);
}

TEST(read_file, refuses_a_fifo_and_does_not_wait)
{
	char *text;
	size_t size;

	unlink(path);
	REQUIRE_EQUAL(mkfifo(path, 0600), 0);
	CHECK_EQUAL(read_file(path, 10, &text, &size), -EINVAL);
	unlink(path);
}
