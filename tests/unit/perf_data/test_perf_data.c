/* SPDX-License-Identifier: Apache-2.0 */
/* The perf.data reader with broken files, and the writer with invalid input. Tests with perf:
 * tests/e2e/test_perf.c. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/bytes_read.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_records.h"
#include "vmm/perf_data/perf_data_writer.h"

#define CORPUS "tests/fuzz/corpus/perf_data/"

static size_t load(const char *path, uint8_t *to, size_t size)
{
	FILE *file = fopen(path, "rb");
	size_t got = file ? fread(to, 1, size, file) : 0;

	if (file)
		fclose(file);
	return got;
}

struct seen {
	unsigned int samples, mappings, comms, build_ids;
	uint64_t lost;
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	((struct seen *)context)->samples++;
	return 0;
}

static int see_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	((struct seen *)context)->mappings++;
	return 0;
}

static int see_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	((struct seen *)context)->comms++;
	return 0;
}

static int see_build_id(void *context, const struct perf_data_build_id *build_id)
{
	((struct seen *)context)->build_ids++;
	return 0;
}

static int see_lost(void *context, uint64_t count)
{
	((struct seen *)context)->lost += count;
	return 0;
}

static int read_path(const char *path, struct seen *seen, struct perf_data_summary *summary)
{
	struct perf_data_events events = { .sample = see_sample,
					   .mapping = see_mapping,
					   .comm = see_comm,
					   .build_id = see_build_id,
					   .lost = see_lost,
					   .context = seen };
	struct perf_data_reader *reader;
	int error = perf_data_reader_open(&reader, path);

	*seen = (struct seen){ 0 };
	if (error)
		return error;
	error = perf_data_reader_run(reader, &events);
	if (summary)
		*summary = *perf_data_reader_summary(reader);
	perf_data_reader_close(reader);
	return error;
}

static int read_bytes(const uint8_t *bytes, size_t size, struct seen *seen,
		      struct perf_data_summary *summary)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC), error = -EIO;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write(fd, bytes, size) == (ssize_t)size)
		error = read_path(path, seen, summary);
	close(fd);
	return error;
}

TEST(perf_data, corpus_files_are_read_whole)
{
	static const char *const files[] = { "plain", "zstd", "pipe", "host", "killed" };
	struct perf_data_summary summary;
	struct seen seen;
	char path[128];

	for (size_t i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), CORPUS "%s", files[i]);
		CHECK_EQUAL(read_path(path, &seen, &summary), 0);
		CHECK_EQUAL(seen.samples, 10);
		CHECK_EQUAL(seen.mappings, 2);
		CHECK_EQUAL(seen.comms, 2);
		CHECK_EQUAL(seen.lost, 17);
		CHECK_EQUAL(seen.build_ids, i < 2);
		CHECK_EQUAL(summary.cut_off, i == 4);
		CHECK_EQUAL(summary.compressed, i == 1 || i == 4);
		CHECK_EQUAL(summary.skipped, 0);
		CHECK_EQUAL(summary.cpus, 2);
		CHECK_EQUAL(summary.events, 1);
		CHECK_EQUAL(summary.frequency, 1000);
		CHECK_STRING(summary.hostname, "guesty");
		CHECK_STRING(summary.event_name, i == 1 ? "wall-clock" : "cpu-clock");
		CHECK_STRING(summary.command_line, "kvmscope run -F 1000 x");
	}
}

/* Truncated anywhere: records before the cut are read, and the summary reports the cut. */
static void check_cuts(const char *path)
{
	uint8_t bytes[4096];
	size_t size = load(path, bytes, sizeof(bytes));
	struct perf_data_summary summary;
	unsigned int before = 0;
	struct seen seen;

	REQUIRE(size > 1000);
	for (size_t cut = 0; cut < size; cut++) {
		int error = read_bytes(bytes, cut, &seen, &summary);

		if (error) {
			CHECK_EQUAL(error, -EINVAL);
			CHECK(strlen(error_message()) > 10);
			CHECK(cut < 300);
			continue;
		}
		CHECK(seen.samples >= before);
		before = seen.samples;
	}
	CHECK_EQUAL(before, 10);
}

TEST(perf_data, reader_reads_up_to_any_cut)
{
	check_cuts(CORPUS "plain");
	check_cuts(CORPUS "zstd");
	check_cuts(CORPUS "pipe");
}

TEST(perf_data, reader_survives_any_wrong_byte)
{
	static const uint8_t wrong[] = { 0x00, 0xff };
	static const char *const files[] = { "plain", "zstd", "pipe", "host" };
	uint8_t bytes[4096];
	struct seen seen;
	char path[128];

	for (size_t file = 0; file < 4; file++) {
		size_t size;

		snprintf(path, sizeof(path), CORPUS "%s", files[file]);
		size = load(path, bytes, sizeof(bytes));
		REQUIRE(size > 1000);
		for (size_t i = 0; i < size; i += file ? 3 : 1) {
			uint8_t right = bytes[i];

			for (size_t j = 0; j < sizeof(wrong); j++) {
				bytes[i] = wrong[j];
				if (!read_bytes(bytes, size, &seen, NULL))
					CHECK(seen.samples <= 10000);
			}
			bytes[i] = right;
		}
	}
}

TEST(perf_data, reader_refuses_other_files)
{
	uint8_t bytes[4096];
	size_t size = load(CORPUS "plain", bytes, sizeof(bytes));
	uint64_t swapped = PERF_DATA_MAGIC_SWAPPED;
	struct seen seen;

	CHECK_EQUAL(read_path("/nonexistent/perf.data", &seen, NULL), -ENOENT);
	CHECK(strstr(error_message(), "/nonexistent/perf.data"));
	CHECK_EQUAL(read_path("/tmp", &seen, NULL), -EISDIR);
	CHECK_EQUAL(read_path("/dev/null", &seen, NULL), -EINVAL);
	CHECK_EQUAL(read_path("Makefile", &seen, NULL), -EINVAL);
	memcpy(bytes, &swapped, sizeof(swapped));
	CHECK_EQUAL(read_bytes(bytes, size, &seen, NULL), -ENOTSUP);
}

/* A few bytes that unpack to very many. */
TEST(perf_data, reader_bounds_unpacked_data)
{
	uint8_t bytes[65536 + 4096];
	size_t size = load(CORPUS "pipe", bytes, 4096);
	struct perf_event_header header = { .type = PERF_DATA_COMPRESSED, .size = 65528 };
	uint8_t *frame = bytes + size + sizeof(header);
	struct seen seen;

	/* A frame without content size and with a window of 128 MiB, of run-length blocks of 128
	 * KiB (RFC 8878). */
	static const uint8_t begin[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88 };
	static const uint8_t block[] = { 0x02, 0x00, 0x10, 0x00 };

	REQUIRE(size > 1000);
	memcpy(bytes + size, &header, sizeof(header));
	memcpy(frame, begin, sizeof(begin));
	for (size_t i = sizeof(begin); i + sizeof(block) <= header.size - sizeof(header);
	     i += sizeof(block))
		memcpy(frame + i, block, sizeof(block));
	CHECK_EQUAL(read_bytes(bytes, size + header.size, &seen, NULL), -EINVAL);
	CHECK(strstr(error_message(), "unpacks to an implausible size"));
	CHECK_EQUAL(seen.samples, 10);
}

/* All features are the same 64 MiB of a file that has no more: reading each would be 16 GiB. */
TEST(perf_data, reader_bounds_sections_that_overlap)
{
	struct perf_data_section sections[FEATURE_COUNT];
	struct perf_data_header header;
	uint8_t bytes[8192];
	size_t size = load(CORPUS "plain", bytes, 4096), table;
	int fd = memfd_create("perf.data", MFD_CLOEXEC);
	uint64_t begin = bytes_read();
	struct seen seen;
	char path[32];

	if (!begin)
		SKIP("no /proc/thread-self/io");
	REQUIRE(size > sizeof(header));
	memcpy(&header, bytes, sizeof(header));
	memset(header.features, 0xff, sizeof(header.features));
	memcpy(bytes, &header, sizeof(header));
	table = header.data.offset + header.data.size;
	REQUIRE(table + sizeof(sections) <= sizeof(bytes));
	for (size_t i = 0; i < FEATURE_COUNT; i++)
		sections[i] = (struct perf_data_section){ sizeof(bytes), 64 << 20 };
	memcpy(bytes + table, sections, sizeof(sections));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	REQUIRE_EQUAL(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	REQUIRE_EQUAL(ftruncate(fd, (64 << 20) + sizeof(bytes)), 0);
	CHECK_EQUAL(read_path(path, &seen, NULL), 0);
	CHECK_EQUAL(seen.samples, 10);
	CHECK(bytes_read() - begin < (300u << 20));
	close(fd);
}

static int stop_at_third(void *context, const struct perf_data_sample *sample)
{
	return ++*(unsigned int *)context == 3 ? -ECANCELED : 0;
}

/* A pipe may bring a new event between any two samples: a lookup must not put all ids in order. */
TEST(perf_data, ids_are_found_between_new_ones)
{
	struct perf_data_layout layout = { 0 };
	struct perf_event_attr attribute = { .size = sizeof(attribute) };
	struct span bytes = { (const uint8_t *)&attribute, sizeof(attribute) };

	CHECK_EQUAL(perf_data_layout_add_event(&layout, bytes), 0);
	CHECK_EQUAL(perf_data_layout_add_event(&layout, bytes), 1);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t id = UINT64_MAX - i * 4096;

		bytes = (struct span){ (const uint8_t *)&id, sizeof(id) };
		CHECK_EQUAL(perf_data_layout_add_ids(&layout, i % 2, bytes), 0);
		CHECK_EQUAL(perf_data_layout_event(&layout, id), (int)(i % 2));
		CHECK_EQUAL(perf_data_layout_event(&layout, id + 1), -1);
	}
	/* An id that the file has twice stays with its first event. */
	bytes = (struct span){ (const uint8_t *)&(uint64_t){ UINT64_MAX }, sizeof(uint64_t) };
	CHECK_EQUAL(perf_data_layout_add_ids(&layout, 1, bytes), 0);
	CHECK_EQUAL(perf_data_layout_event(&layout, UINT64_MAX), 0);
	perf_data_layout_free(&layout);
}

TEST(perf_data, a_callback_ends_the_reading)
{
	unsigned int samples = 0;
	struct perf_data_events events = { .sample = stop_at_third, .context = &samples };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, CORPUS "zstd"), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), -ECANCELED);
	CHECK_EQUAL(samples, 3);
	samples = 100;
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK_EQUAL(samples, 110);
	perf_data_reader_close(reader);
}

static int check_guest_sample(void *context, const struct perf_data_sample *sample)
{
	CHECK_EQUAL(sample->machine_pid, 4242);
	CHECK_EQUAL(sample->vcpu, sample->tid - 5000);
	CHECK_EQUAL(sample->cpu, UINT32_MAX);
	CHECK(sample->misc == PERF_RECORD_MISC_GUEST_KERNEL ||
	      sample->misc == PERF_RECORD_MISC_GUEST_USER);
	++*(unsigned int *)context;
	return 0;
}

TEST(perf_data, host_perspective_names_machine_and_vcpu)
{
	unsigned int samples = 0;
	struct perf_data_events events = { .sample = check_guest_sample, .context = &samples };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, CORPUS "host"), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK_EQUAL(samples, 10);
	perf_data_reader_close(reader);
}

struct chain {
	uint64_t wanted[6];
	unsigned int samples;
};

static int check_chain(void *context, const struct perf_data_sample *sample)
{
	struct chain *chain = context;

	chain->samples++;
	CHECK_EQUAL(sample->callchain_size, 6);
	for (size_t i = 0; i < 6 && i < sample->callchain_size; i++)
		CHECK_EQUAL(sample->callchain[i], chain->wanted[i]);
	return 0;
}

/* An uncertain kernel caller is looked up in user space; addresses in the lower half are never
 * marked. */
TEST(perf_data, call_chains_are_written_for_any_kernel_address)
{
	static const uint64_t low[] = { 0x101000, 0x102000 },
			      high[] = { 0xffffffffc0001000, 0xbfffffffc0002000 };
	struct chain chain = { .wanted = { PERF_CONTEXT_KERNEL, low[0], low[1], high[0],
					   PERF_CONTEXT_USER, 0xffffffffc0002000 } };
	char path[64];
	struct perf_data_options options = {
		.path = path, .frequency = 100, .callchains = true, .vcpus = 1
	};
	struct perf_data_events events = { .sample = check_chain, .context = &chain };
	struct perf_data_reader *reader;
	struct perf_data_writer *writer;
	union {
		struct sample sample;
		uint8_t bytes[sizeof(struct sample) + 4 * sizeof(uint64_t)];
	} made = { .sample = { .time = 1, .period = 1, .kernel_depth = 4 } };

	snprintf(path, sizeof(path), "build/test-chain-%d.data", getpid());
	memcpy(made.sample.callchain, low, sizeof(low));
	memcpy(made.sample.callchain + 2, high, sizeof(high));
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_sample(writer, &made.sample), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, options.path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK_EQUAL(chain.samples, 1);
	perf_data_reader_close(reader);
	unlink(options.path);
}

/* Its content is tested in tests/e2e/test_perf.c. */
TEST(perf_data, an_empty_existing_file_is_not_kept)
{
	char path[] = "/tmp/kvmscope-test-XXXXXX", old[64];
	int empty = mkstemp(path);
	struct perf_data_output *output;

	REQUIRE(empty >= 0);
	close(empty);
	snprintf(old, sizeof(old), "%s.old", path);
	REQUIRE_EQUAL(perf_data_output_open(&output, path, 0), 0);
	CHECK(access(old, F_OK) != 0);
	CHECK(!access(path, F_OK));
	perf_data_output_close(output);
	unlink(path);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	REQUIRE(file);
	fputs(text, file);
	fclose(file);
}

static void check_text(const char *path, const char *text)
{
	uint8_t found[64] = { 0 };

	load(path, found, sizeof(found) - 1);
	CHECK_STRING((const char *)found, text);
}

static void write_new(const char *path, bool as_pipe)
{
	struct perf_data_output *output;

	REQUIRE_EQUAL(perf_data_output_open(&output, path, 0), 0);
	CHECK_EQUAL(perf_data_output_is_pipe(output), as_pipe);
	CHECK_EQUAL(perf_data_output_plain(output, "new", 3), 0);
	CHECK_EQUAL(perf_data_output_close(output), 0);
}

static bool has_type(const char *path, mode_t type)
{
	struct stat status;

	return !lstat(path, &status) && (status.st_mode & S_IFMT) == type;
}

/* Only regular files are renamed and replaced. */
TEST(perf_data, links_and_devices_stay)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX", here[256], number[64];
	int removed;

	REQUIRE(getcwd(here, sizeof(here)) && mkdtemp(directory) && !chdir(directory));
	write_text("target", "before");
	CHECK(!symlink("target", "link") && !symlink("nothing", "dangling") &&
	      !symlink("/dev/null", "device"));
	write_new("link", false);
	CHECK(has_type("link", S_IFLNK));
	check_text("target", "new");
	check_text("target.old", "before");
	write_new("dangling", false);
	CHECK(has_type("dangling", S_IFLNK));
	check_text("nothing", "new");
	write_new("device", true);
	CHECK(has_type("device", S_IFLNK) && has_type("/dev/null", S_IFCHR));

	removed = open("removed", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(removed >= 0 && !unlink("removed"));
	snprintf(number, sizeof(number), "/proc/self/fd/%d", removed);
	write_new(number, false);
	check_text(number, "new");
	CHECK(access("removed", F_OK) != 0);
	close(removed);
	CHECK(!unlink("link") && !unlink("target") && !unlink("target.old") &&
	      !unlink("dangling") && !unlink("nothing") && !unlink("device"));
	CHECK(!chdir(here) && !rmdir(directory));
}

/* Another user must not choose the file that root writes. */
TEST(perf_data, links_of_other_users_are_not_followed)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX", here[256];

	if (geteuid())
		SKIP("nobody but root can make a link of another user");
	REQUIRE(getcwd(here, sizeof(here)) && mkdtemp(directory) && !chdir(directory));
	write_text("target", "before");
	CHECK(!symlink("target", "link") && !lchown("link", 4711, 4711));
	write_new("link", false);
	check_text("target", "before");
	check_text("link", "new");
	CHECK(has_type("link", S_IFREG) && has_type("link.old", S_IFLNK));
	CHECK(!unlink("link") && !unlink("link.old") && !unlink("target"));
	CHECK(!chdir(here) && !rmdir(directory));
}

/* The user cannot read the path of the current directory: relative names still work. */
static int write_below_closed_directory(void)
{
	char target[PATH_MAX];

	if (setegid(4711) || seteuid(4711))
		return 1;
	return !output_path_is_file("file", target) || strcmp(target, "file") != 0 ||
	       !output_path_is_file("link", target) || strcmp(target, "link") != 0;
}

TEST(perf_data, files_in_an_unsearchable_directory_are_replaced)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX", below[64], here[256];
	int status;
	pid_t child;

	if (geteuid())
		SKIP("nobody but root can become another user");
	snprintf(below, sizeof(below), "%s/below", mkdtemp(directory));
	REQUIRE(getcwd(here, sizeof(here)) && !mkdir(below, 0755) && !chdir(below));
	write_text("file", "before");
	CHECK(!symlink("file", "link") && !lchown("link", 4711, 4711));
	child = fork();
	if (!child)
		_exit(write_below_closed_directory());
	waitpid(child, &status, 0);
	CHECK_EQUAL(status, 0);
	CHECK(!unlink("file") && !unlink("link") && !chdir(here) && !rmdir(below) &&
	      !rmdir(directory));
}

TEST(perf_data, a_file_without_disk_space_is_removed)
{
	char path[] = "/tmp/kvmscope-test-XXXXXX";
	struct perf_data_output *output;
	struct rlimit before, none;
	int file = mkstemp(path), error;

	REQUIRE(file >= 0 && !getrlimit(RLIMIT_FSIZE, &before));
	close(file);
	none = before;
	none.rlim_cur = 0;
	signal(SIGXFSZ, SIG_IGN);
	REQUIRE_EQUAL(perf_data_output_open(&output, path, 0), 0);
	setrlimit(RLIMIT_FSIZE, &none);
	error = perf_data_output_plain(output, "new", 3);
	setrlimit(RLIMIT_FSIZE, &before);
	signal(SIGXFSZ, SIG_DFL);
	CHECK_EQUAL(error, -EFBIG);
	CHECK_EQUAL(perf_data_output_close(output), -EFBIG);
	CHECK(access(path, F_OK) != 0);
}

TEST(perf_data, standard_output_has_several_names)
{
	CHECK(output_path_is_standard("-"));
	CHECK(output_path_is_standard("/proc/self/fd/1"));
	CHECK(!output_path_is_standard("perf.data"));
	CHECK(!output_path_is_standard("/nonexistent/perf.data"));
	CHECK(!output_path_is_standard("/dev/null"));
}

TEST(perf_data, writer_refuses_invalid_records)
{
	struct perf_data_options options = { .path = "/tmp/kvmscope-test-perf.data",
					     .frequency = 100,
					     .vcpus = 0 };
	struct sample sample = { .vcpu = 2 };
	struct perf_data_writer *writer;

	CHECK_EQUAL(perf_data_writer_open(&writer, &options), -EINVAL);
	options.vcpus = 2;
	options.compression = 23;
	CHECK_EQUAL(perf_data_writer_open(&writer, &options), -EINVAL);
	options.compression = 0;
	options.path = "/nonexistent/perf.data";
	CHECK_EQUAL(perf_data_writer_open(&writer, &options), -ENOENT);
	CHECK(strstr(error_message(), "/nonexistent/perf.data"));
	options.path = "/tmp/kvmscope-test-perf.data";
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_sample(writer, &sample), -EINVAL);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	unlink(options.path);
}
