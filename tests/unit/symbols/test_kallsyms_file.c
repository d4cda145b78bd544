/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/kallsyms_file.h"

/* Loads TEXT as a file of SIZE bytes. */
static int load(struct symbols **symbols, const char *text, size_t size)
{
	char path[] = "build/kallsyms-XXXXXX";
	int fd = mkstemp(path);
	int result;

	if (fd < 0 || write(fd, text, size) != (ssize_t)size)
		FAIL_TEST("cannot write %s", path);
	close(fd);
	result = kallsyms_file_load(symbols, path);
	unlink(path);
	return result;
}

static int load_text(struct symbols **symbols, const char *text)
{
	return load(symbols, text, strlen(text));
}

static void check_name(const struct symbols *symbols, uint64_t address, const char *name,
		       const char *module)
{
	struct symbol symbol;

	REQUIRE(symbols_find(symbols, address, &symbol));
	CHECK_STRING(symbol.name, name);
	if (module)
		CHECK_STRING(symbol.module, module);
	else
		CHECK(!symbol.module);
}

static void check_nothing(const struct symbols *symbols, uint64_t address)
{
	struct symbol symbol;

	CHECK(!symbols_find(symbols, address, &symbol));
}

TEST(kallsyms_file, finds_functions_of_kernel_and_modules)
{
	struct symbols *symbols;

	REQUIRE_EQUAL(load_text(&symbols, "0000000000000000 A fixed_percpu_data\n"
					  "ffffffff81000000 T _text\n"
					  "ffffffff81000100 t do_one\n"
					  "ffffffff81000200 W weak_one\n"
					  "ffffffffc0001000 t virtblk_done\t[virtio_blk]\n"
					  "ffffffffc0001080 t virtio_queue_rq\t[virtio_blk]\n"),
		      0);
	CHECK_EQUAL(symbols_count(symbols), 5);
	check_name(symbols, 0xffffffff81000000, "_text", NULL);
	check_name(symbols, 0xffffffff810001ff, "do_one", NULL);
	check_name(symbols, 0xffffffffc000107f, "virtblk_done", "virtio_blk");
	check_nothing(symbols, 0xffffffff80ffffff);
	symbols_free(symbols);
}

TEST(kallsyms_file, ends_the_kernel_with_its_page)
{
	struct symbols *symbols;

	REQUIRE_EQUAL(load_text(&symbols, "ffffffff81000000 T _text\n"
					  "ffffffff81000200 T last_one\n"
					  "ffffffffc0001000 t virtblk_done\t[virtio_blk]\n"),
		      0);
	check_name(symbols, 0xffffffff81001fff, "last_one", NULL);
	check_nothing(symbols, 0xffffffff81002000);
	check_name(symbols, 0xffffffffc0001fff, "virtblk_done", "virtio_blk");
	check_nothing(symbols, 0xffffffffc0003000);
	symbols_free(symbols);
}

TEST(kallsyms_file, names_aliases_as_perf_does)
{
	struct symbols *symbols;

	/* Without sizes perf keeps the last symbol at an address. */
	REQUIRE_EQUAL(load_text(&symbols, "ffffffff81000000 T first\n"
					  "ffffffff81000000 t __last\n"
					  "ffffffff81000010 T next\n"),
		      0);
	check_name(symbols, 0xffffffff81000008, "__last", NULL);
	symbols_free(symbols);
}

TEST(kallsyms_file, sorts_symbols)
{
	struct symbols *symbols;

	REQUIRE_EQUAL(load_text(&symbols, "ffffffff81000100 T b\nffffffff81000000 T a\n"), 0);
	check_name(symbols, 0xffffffff81000000, "a", NULL);
	check_name(symbols, 0xffffffff81000100, "b", NULL);
	symbols_free(symbols);
}

TEST(kallsyms_file, refuses_other_files)
{
	struct symbols *symbols;

	CHECK_EQUAL(load_text(&symbols, "hello\n"), -EINVAL);
	CHECK(strstr(error_message(), "line 1"));
	CHECK_EQUAL(load_text(&symbols, "ffffffff81000000 T ok\nffffffff81000000 Tx bad\n"),
		    -EINVAL);
	CHECK(strstr(error_message(), "line 2"));
	CHECK_EQUAL(load_text(&symbols, "fffffffffffffffff T too_large\n"), -EINVAL);
	CHECK_EQUAL(load_text(&symbols, "ffffffff81000000 T\n"), -EINVAL);
	CHECK_EQUAL(load(&symbols, "ffffffff81000000 T a\0b\n", 23), -EINVAL);
	CHECK_EQUAL(load_text(&symbols, ""), -ENODATA);
	CHECK_EQUAL(kallsyms_file_load(&symbols, "build/no-such-file"), -ENOENT);
	CHECK_EQUAL(kallsyms_file_load(&symbols, "."), -EISDIR);
}

TEST(kallsyms_file, reports_why_addresses_are_zero)
{
	struct symbols *symbols;

	CHECK_EQUAL(load_text(&symbols, "0000000000000000 T _text\n0000000000000000 T _stext\n"),
		    -EPERM);
	CHECK(strstr(error_message(), "kptr_restrict"));
}
