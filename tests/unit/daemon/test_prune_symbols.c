/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols that no recording needs are removed, the longest unused first. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/prune_symbols.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/symbols/build_id_cache.h"

#define KIB       1024u
#define PATH_SIZE 256

/* Builds by the first byte of their ids; the other bytes are 0x11. */
enum { KERNEL = 0xaa, LIBRARY = 0xbb, PROGRAM = 0xcc, OTHER = 0xdd };

struct fixture {
	char directory[64], names[80];
	int64_t now;
};

static void set_up(struct fixture *fixture)
{
	snprintf(fixture->directory, sizeof(fixture->directory),
		 "/tmp/kvmscope-prune-symbols-XXXXXX");
	if (!mkdtemp(fixture->directory))
		abort();
	snprintf(fixture->names, sizeof(fixture->names), "%s/names", fixture->directory);
	fixture->now = time(NULL);
}

static void run(const char *format, const char *one, const char *other)
{
	char command[4 * PATH_SIZE];

	snprintf(command, sizeof(command), format, one, other);
	CHECK_EQUAL(system(command), 0);
}

static void tear_down(struct fixture *fixture)
{
	run("rm -rf %s%s", fixture->directory, "");
}

static void fill_id(uint8_t id[20], int build)
{
	memset(id, 0x11, 20);
	id[0] = (uint8_t)build;
}

/* Paths of symbols and their link: NAMES/KIND/ID, NAMES/.build-id/xx/yyyy. */
static void path_of(const struct fixture *fixture, const char *kind, int build,
		    char path[PATH_SIZE])
{
	static const char rest[] = "11111111111111111111111111111111111111";

	if (kind)
		snprintf(path, PATH_SIZE, "%s/%s/%02x%s", fixture->names, kind, (unsigned int)build,
			 rest);
	else
		snprintf(path, PATH_SIZE, "%s/.build-id/%02x/%s", fixture->names,
			 (unsigned int)build, rest);
}

static bool exists(const struct fixture *fixture, const char *kind, int build)
{
	char path[PATH_SIZE];
	struct stat status;

	path_of(fixture, kind, build, path);
	return !lstat(path, &status);
}

/* Creates SIZE bytes that were used DAYS ago, in a directory below the usual one. */
static void make_build(const struct fixture *fixture, const char *kind, int build, unsigned int kib,
		       int days)
{
	const struct timespec times[2] = { { .tv_sec = fixture->now - days * 86400L },
					   { .tv_sec = fixture->now - days * 86400L } };
	char path[PATH_SIZE], link[PATH_SIZE], size[16];

	path_of(fixture, kind, build, path);
	path_of(fixture, NULL, build, link);
	snprintf(size, sizeof(size), "%uK", kib);
	run("mkdir -p '%s/boot' && ln -s kallsyms '%s/elf'", path, path);
	run("truncate -s %s '%s/boot/kallsyms'", size, path);
	run("mkdir -p $(dirname %s)%s", link, "");
	if (!exists(fixture, NULL, build))
		run("ln -s '%s' %s", path, link);
	utimensat(AT_FDCWD, path, times, 0);
	strcat(path, "/boot");
	utimensat(AT_FDCWD, path, times, 0);
}

/* A recording of the kernel and of one image. */
static void make_recording(const struct fixture *fixture, const char *name, int kernel, int image)
{
	char path[PATH_SIZE];
	const struct perf_data_options options = { .path = path, .frequency = 99, .vcpus = 1 };
	uint8_t kernel_id[20], image_id[20];
	const struct perf_data_mapping of_kernel = { .pid = -1,
						     .start = 0xffffffff81000000,
						     .size = 4096,
						     .name = "[kernel.kallsyms]_text",
						     .build_id = kernel_id,
						     .build_id_size = 20,
						     .kernel = true };
	const struct perf_data_mapping of_image = { .pid = 1,
						    .tid = 1,
						    .start = 0x400000,
						    .size = 4096,
						    .name = "/bin/program",
						    .build_id = image_id,
						    .build_id_size = 20 };
	struct perf_data_writer *writer;

	fill_id(kernel_id, kernel);
	fill_id(image_id, image);
	snprintf(path, sizeof(path), "%s/%s", fixture->directory, name);
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_mapping(writer, &of_kernel), 0);
	CHECK_EQUAL(perf_data_writer_mapping(writer, &of_image), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

static struct pruned_symbols remove_names(const struct fixture *fixture, int64_t since,
					  uint64_t bytes)
{
	struct pruned_symbols removed = { 0 };

	if (prune_symbols(fixture->directory, fixture->names, since, bytes, &removed))
		FAIL_TEST("%s", error_message());
	return removed;
}

TEST(prune_symbols, are_kept_if_recordings_need_them)
{
	struct pruned_symbols removed;
	struct fixture fixture;

	set_up(&fixture);
	make_recording(&fixture, "20261122T105545.120Z.perf.data", KERNEL, LIBRARY);
	make_build(&fixture, "[kernel.kallsyms]", KERNEL, 100, 9);
	make_build(&fixture, "[kernel.kcore]", KERNEL, 100, 9);
	make_build(&fixture, "[guest.user]", LIBRARY, 100, 9);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 3);
	removed = remove_names(&fixture, fixture.now, UINT64_MAX);
	CHECK_EQUAL(removed.builds, 1);
	CHECK_EQUAL(removed.bytes, 100 * KIB);
	CHECK(exists(&fixture, "[kernel.kallsyms]", KERNEL));
	CHECK(exists(&fixture, "[kernel.kcore]", KERNEL));
	CHECK(exists(&fixture, "[guest.user]", LIBRARY));
	CHECK(exists(&fixture, NULL, LIBRARY));
	CHECK(!exists(&fixture, "[guest.user]", PROGRAM));
	CHECK(!exists(&fixture, NULL, PROGRAM));
	tear_down(&fixture);
}

/* Files of one build are removed together. */
TEST(prune_symbols, the_longest_unused_are_removed_first_and_no_more_than_needed)
{
	struct pruned_symbols removed;
	struct fixture fixture;

	set_up(&fixture);
	make_build(&fixture, "[guest.user]", LIBRARY, 100, 5);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 7);
	make_build(&fixture, "[kernel.kallsyms]", KERNEL, 100, 9);
	make_build(&fixture, "[kernel.kcore]", KERNEL, 100, 6);
	removed = remove_names(&fixture, fixture.now, 101 * KIB);
	CHECK_EQUAL(removed.builds, 2);
	CHECK_EQUAL(removed.bytes, 300 * KIB);
	CHECK(exists(&fixture, "[guest.user]", LIBRARY));
	CHECK(!exists(&fixture, "[guest.user]", PROGRAM));
	CHECK(!exists(&fixture, "[kernel.kallsyms]", KERNEL));
	CHECK(!exists(&fixture, "[kernel.kcore]", KERNEL));
	tear_down(&fixture);
}

TEST(prune_symbols, are_kept_while_in_use)
{
	struct pruned_symbols removed;
	struct fixture fixture;
	uint8_t id[20];

	set_up(&fixture);
	make_build(&fixture, "[guest.user]", LIBRARY, 100, 5);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 5);
	make_build(&fixture, "[kernel.kallsyms]", OTHER, 100, 0);
	fill_id(id, LIBRARY);
	build_id_cache_touch(fixture.names, span_of(id, sizeof(id)));
	removed = remove_names(&fixture, fixture.now, UINT64_MAX);
	CHECK_EQUAL(removed.builds, 1);
	CHECK(exists(&fixture, "[guest.user]", LIBRARY));
	CHECK(exists(&fixture, "[kernel.kallsyms]", OTHER));
	CHECK(!exists(&fixture, "[guest.user]", PROGRAM));
	tear_down(&fixture);
}

/* After a power failure: otherwise an unreadable recording would keep all symbols forever. */
TEST(prune_symbols, are_removed_though_a_recording_has_an_incomplete_header)
{
	struct fixture fixture;

	set_up(&fixture);
	make_recording(&fixture, "20261122T105545.120Z.perf.data", KERNEL, LIBRARY);
	run("cd %s && truncate -s 0 %s", fixture.directory, "20261122T105546.120Z.perf.data");
	run("cd %s && head -c 50 *45.120Z.perf.data > %s", fixture.directory,
	    "20261122T105547.120Z.perf.data");
	make_build(&fixture, "[guest.user]", LIBRARY, 100, 5);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 5);
	CHECK_EQUAL(remove_names(&fixture, fixture.now, UINT64_MAX).builds, 1);
	CHECK(exists(&fixture, "[guest.user]", LIBRARY));
	tear_down(&fixture);
}

/* A recording that cannot be read may need anything. A partial one needs only what it lists. */
TEST(prune_symbols, are_all_kept_if_a_recording_cannot_be_read)
{
	struct pruned_symbols removed;
	struct fixture fixture;

	set_up(&fixture);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 5);
	/* With another byte order its builds are unknown. */
	run("echo 2ELIFREP0123456789 > %s/%s", fixture.directory, "20261122T105545.120Z.perf.data");
	CHECK(prune_symbols(fixture.directory, fixture.names, fixture.now, UINT64_MAX, &removed) <
	      0);
	CHECK_EQUAL(removed.builds, 0);
	CHECK(exists(&fixture, "[guest.user]", PROGRAM));
	run("cd %s && mv *.perf.data %s", fixture.directory,
	    "20261122T105545.120Z.perf.data.partial");
	CHECK_EQUAL(remove_names(&fixture, fixture.now, UINT64_MAX).builds, 1);
	tear_down(&fixture);
}

/* Other files are kept, and links are not followed. */
TEST(prune_symbols, nothing_else_is_removed)
{
	struct fixture fixture;

	set_up(&fixture);
	make_build(&fixture, "[guest.user]", PROGRAM, 100, 5);
	run("mkdir -p %s/kind/notes %s/keep", fixture.names, fixture.directory);
	run("touch %s/kind/notes/file %s/keep/file", fixture.names, fixture.directory);
	run("ln -s %s/keep %s/kind/abcdef", fixture.directory, fixture.names);
	run("ln -s %s/keep %s/keep-link", fixture.directory, fixture.names);
	CHECK_EQUAL(remove_names(&fixture, fixture.now + 86400, UINT64_MAX).builds, 1);
	run("test -e %s/kind/notes/file && test -L %s/keep-link", fixture.names, fixture.names);
	run("test -e %s/keep/file%s", fixture.directory, "");
	tear_down(&fixture);
}
