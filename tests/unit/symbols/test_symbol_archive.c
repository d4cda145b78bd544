/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of symbols: what is written is unpacked, and damaged or hostile ones are refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/read_file.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/symbol_archive.h"

#define ID "0123456789abcdef0123456789abcdef01234567"

struct setting {
	char directory[64], archive[96], recording[96], unpacked[96];
};

static void put(const char *path, const void *bytes, size_t size)
{
	FILE *file = fopen(path, "we");

	REQUIRE(file);
	CHECK_EQUAL(fwrite(bytes, 1, size, file), size);
	CHECK_EQUAL(fclose(file), 0);
}

static void begin(struct setting *setting)
{
	snprintf(setting->directory, sizeof(setting->directory), "build/archive-XXXXXX");
	REQUIRE(mkdtemp(setting->directory));
	snprintf(setting->archive, sizeof(setting->archive), "%s/archive", setting->directory);
	snprintf(setting->recording, sizeof(setting->recording), "%s/data", setting->directory);
	snprintf(setting->unpacked, sizeof(setting->unpacked), "%s/unpacked", setting->directory);
	put(setting->recording, "x", 1);
}

static void end(const struct setting *setting)
{
	free(command_output(NULL, "rm -rf %s", setting->directory));
}

static int unpack(const struct setting *setting)
{
	free(command_output(NULL, "rm -rf %s; mkdir %s", setting->unpacked, setting->unpacked));
	return symbol_archive_unpack(setting->archive, setting->recording, setting->unpacked);
}

/* Three files: of an image, of a boot, and code. */
static void write_archive(const struct setting *setting)
{
	struct symbol_archive *archive;
	struct cache_file file;
	char from[96];
	uint64_t size = 0;

	snprintf(from, sizeof(from), "%s/from", setting->directory);
	put(from, "symbols", 7);
	REQUIRE_EQUAL(symbol_archive_open(&file, setting->archive), 0);
	REQUIRE_EQUAL(symbol_archive_create(&archive, &file, setting->recording), 0);
	CHECK_EQUAL(symbol_archive_add(archive, "[guest.user]", ID, "elf", from), 0);
	CHECK_EQUAL(symbol_archive_add(archive, "[kernel.kcore]", ID, "2026/kallsyms", from), 0);
	CHECK_EQUAL(symbol_archive_add(archive, "[kernel.kcore]", ID, "2026/kcore", from), 0);
	CHECK_EQUAL(symbol_archive_close(archive, 0, &size), 0);
	CHECK_EQUAL(cache_file_end(&file, 0), 0);
	CHECK(size > 0);
}

static char *files_in(const char *directory)
{
	return command_output(NULL, "cd %s && find -L . -type f | sort | tr '\\n' ' '", directory);
}

static void check_files(const char *directory, const char *wanted)
{
	char *files = files_in(directory);

	CHECK_STRING(files, wanted);
	free(files);
}

TEST(symbol_archive, unpacks_what_was_written_but_no_code)
{
	struct setting setting;

	begin(&setting);
	write_archive(&setting);
	CHECK_EQUAL(unpack(&setting), 0);
	check_files(setting.unpacked,
		    "./.build-id/01/23456789abcdef0123456789abcdef01234567/elf "
		    "./[guest.user]/" ID "/elf ./[kernel.kcore]/" ID "/2026/kallsyms ");
	end(&setting);
}

TEST(symbol_archive, is_a_tar_file)
{
	struct setting setting;
	int status;
	char *text;

	begin(&setting);
	write_archive(&setting);
	text = command_output(&status,
			      "cd %s && mkdir tree && tar -xzf archive -C tree && cat "
			      "tree/.build-id/*/*/elf tree/*/" ID "/2026/kcore",
			      setting.directory);
	CHECK_EQUAL(status, 0);
	CHECK_STRING(text, "symbolssymbols");
	free(text);
	end(&setting);
}

TEST(symbol_archive, of_another_recording_is_refused)
{
	struct setting setting;

	begin(&setting);
	write_archive(&setting);
	put(setting.recording, "y", 1);
	CHECK_EQUAL(unpack(&setting), -ESTALE);
	check_files(setting.unpacked, "");
	end(&setting);
}

/* Cut anywhere, it ends with an error, and what was unpacked is a part of it. */
TEST(symbol_archive, that_is_truncated_is_an_error)
{
	struct setting setting;
	char *bytes = NULL;
	size_t size = 0;

	begin(&setting);
	write_archive(&setting);
	REQUIRE_EQUAL(read_file(setting.archive, 1 << 20, &bytes, &size), 0);
	for (size_t cut = 0; cut < size; cut += 7) {
		put(setting.archive, bytes, cut);
		CHECK_EQUAL(unpack(&setting), -EINVAL);
	}
	free(bytes);
	end(&setting);
}

TEST(symbol_archive, too_large_a_file_leaves_no_archive)
{
	struct symbol_archive *archive;
	struct cache_file file;
	struct setting setting;
	char from[96];
	int error;

	begin(&setting);
	snprintf(from, sizeof(from), "%s/from", setting.directory);
	put(from, "", 0);
	REQUIRE_EQUAL(truncate(from, (off_t)SYMBOL_ARCHIVE_SIZE_MAX + 1), 0);
	REQUIRE_EQUAL(symbol_archive_open(&file, setting.archive), 0);
	REQUIRE_EQUAL(symbol_archive_create(&archive, &file, setting.recording), 0);
	error = symbol_archive_add(archive, "[guest.user]", ID, "elf", from);
	CHECK_EQUAL(error, -EFBIG);
	CHECK_EQUAL(symbol_archive_close(archive, error, NULL), -EFBIG);
	CHECK_EQUAL(cache_file_end(&file, error), -EFBIG);
	CHECK(access(setting.archive, F_OK));
	end(&setting);
}

/* Names and links that would lead out of the directory, as tar itself writes them. */
TEST(symbol_archive, hostile_names_are_skipped)
{
	struct setting setting;
	int status;

	begin(&setting);
	write_archive(&setting);
	free(command_output(
		&status,
		"cd %s && mkdir t && tar -xzf archive -C t && cd t && touch ../above ../absolute && "
		"mkdir -p a/" ID " && ln -s /etc a/" ID "/link && echo 1 > a/" ID "/.hidden && "
		"tar -cPzf ../archive --format=ustar kvmscope.recording ../above "
		"$PWD/../absolute a '[guest.user]' && rm ../above ../absolute",
		setting.directory));
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(unpack(&setting), 0);
	check_files(setting.unpacked, "./.build-id/01/23456789abcdef0123456789abcdef01234567/elf "
				      "./[guest.user]/" ID "/elf ");
	free(command_output(&status, "cd %s && [ ! -e above ] && [ ! -e absolute ]",
			    setting.directory));
	CHECK_EQUAL(status, 0);
	end(&setting);
}
