/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of programs and of the kernel that the guest agent sends. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/image_file.h"

/* Each of the last two is an end of a table. */
static bool has_two_tables(const struct agent_statistics *statistics)
{
	return statistics->tables.complete + statistics->tables.without == 2;
}

static struct symbols *symbols_of(const struct agent_image_table *table)
{
	char path[] = "/tmp/kvmscope-table-XXXXXX";
	struct symbols *symbols = NULL;
	struct bytes file;
	int fd = mkstemp(path);

	image_file_make(&file, span_of(table->bytes, table->size),
			span_of(table->build_id, table->build_id_size), false);
	CHECK(fd >= 0 && write(fd, file.data, file.size) == (ssize_t)file.size);
	close(fd);
	free(file.data);
	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS,
			     span_of(table->build_id, table->build_id_size)))
		symbols = NULL;
	unlink(path);
	return symbols;
}

/* The symbols of this program, which the agent reads from the process, and those of an unknown
 * build. */
TEST(guest_agent, sends_the_symbols_of_a_mapped_file)
{
	char path[4096] = "";
	struct agent_image image = { .pid = (uint32_t)getpid(), .path = path };
	struct agent_statistics statistics;
	struct agent_image_table *table;
	struct symbols *symbols, *own = NULL;
	struct agent_fixture fixture;
	struct symbol symbol, expected;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	image.build_id_size = (size_t)elf_build_id(path, image.build_id);
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(!agent_request_symbols(fixture.agent, &image));
	image.build_id[0] ^= 1;
	CHECK(!agent_request_symbols(fixture.agent, &image));
	CHECK(agent_fixture_wait(&fixture, has_two_tables));
	table = agent_pop_symbols(fixture.agent);
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.tables.complete, 1);
	CHECK_EQUAL(statistics.tables.without, 1);
	CHECK_EQUAL(statistics.refused, 0);
	REQUIRE(table != NULL);
	symbols = symbols_of(table);
	agent_image_table_free(table);
	REQUIRE(symbols != NULL);
	REQUIRE(!elf_symbols_load(&own, path, ELF_FILE_OFFSETS, (struct span){ 0 }));
	REQUIRE(symbols_find_name(own, "agent_process_run", &expected));
	REQUIRE(symbols_find(symbols, expected.start, &symbol));
	CHECK_STRING(symbol.name, "agent_process_run");
	CHECK_EQUAL(symbol.start, expected.start);
	CHECK_EQUAL(symbol.end, expected.end);
	/* No table of symbols has them. Sanitizers do not replace elf_begin(). */
	REQUIRE(symbols_find_name(own, "elf_begin@plt", &expected));
	REQUIRE(symbols_find(symbols, expected.start, &symbol));
	CHECK_STRING(symbol.name, "elf_begin@plt");
	CHECK_EQUAL(symbol.end, expected.end);
	symbols_free(symbols);
	symbols_free(own);
}

static bool has_kernel(const struct agent_statistics *statistics)
{
	return statistics->tables.kernels || statistics->tables.kernel_error;
}

/*
 * Until the question is taken: the last one has its answer by then; and a session that begins
 * meanwhile, as on a busy machine, has its agent, and has thought of it once.
 */
static bool ask(struct agent_fixture *fixture, uint64_t modules_hash)
{
	for (int i = 0; i < 2000; i++, usleep(10000)) {
		int error = agent_request_kernel(fixture->agent, modules_hash);

		if (error != -EALREADY && error != -EAGAIN && error != -EOPNOTSUPP)
			return !error;
	}
	return false;
}

static struct reported_kernel *take_reported(struct agent_fixture *fixture)
{
	struct agent_image_table *table = agent_pop_kernel(fixture->agent);
	struct reported_kernel *reported = NULL;

	if (table)
		CHECK_EQUAL(reported_kernel_create(&reported, span_of(table->bytes, table->size),
						   table->account),
			    0);
	agent_image_table_free(table);
	return reported;
}

/* The number of lines of this machine's kallsyms, without modules, that SYMBOLS lacks. */
static unsigned int count_wrong(const struct symbols *symbols, unsigned int *checked)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[1024], name[512], module[128], type;
	unsigned long long address;
	unsigned int wrong = 0;
	struct symbol symbol;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx %c %511s %127s", &address, &type, name, module) != 3 ||
		    !strchr("tT", type) || address < 0xffffffff80000000ull)
			continue;
		/* The table has one of several names at an address; a search by name is slow. */
		wrong += !symbols_find(symbols, address, &symbol) || symbol.start != address;
		if (!(++*checked % 2000))
			wrong += !symbols_find_name(symbols, name, &symbol);
	}
	if (file)
		fclose(file);
	return wrong;
}

/* This machine's own, with a build id as /sys/kernel/notes has it; and nothing more while nothing
 * is new. */
TEST(guest_agent, sends_the_symbols_of_its_kernel)
{
	struct agent_statistics statistics;
	struct reported_kernel *reported;
	unsigned int checked = 0;
	struct agent_fixture fixture;
	uint8_t notes[4096];
	int fd;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	CHECK_EQUAL(agent_request_kernel(fixture.agent, 0), -EAGAIN);
	CHECK(ask(&fixture, 0));
	CHECK(agent_fixture_wait(&fixture, has_kernel));
	agent_statistics(fixture.agent, &statistics);
	reported = take_reported(&fixture);
	if (!reported) {
		agent_fixture_tear_down(&fixture, NULL);
		CHECK_EQUAL(statistics.tables.kernel_error, -EPERM);
		SKIP("this machine hides the addresses of its kernel");
	}
	CHECK(ask(&fixture, reported->modules_hash));
	CHECK(ask(&fixture, reported->modules_hash));
	CHECK(take_reported(&fixture) == NULL);
	agent_fixture_tear_down(&fixture, &statistics);
	CHECK_EQUAL(statistics.tables.kernels, 1);
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.tables.refused + statistics.tables.without, 0);
	CHECK_EQUAL(count_wrong(reported->symbols, &checked), 0);
	CHECK(checked > 10000);
	fd = open("/sys/kernel/notes", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t size = read(fd, notes, sizeof(notes));

		CHECK_EQUAL(reported->build_id_size, 20);
		CHECK(size > 0 &&
		      memmem(notes, (size_t)size, reported->build_id, reported->build_id_size));
		close(fd);
	}
	reported_kernel_free(reported);
}

static void write_kernel_file(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", agent_process_kernel_files, name);
	file = fopen(path, "we");
	REQUIRE(file && fputs(text, file) >= 0);
	fclose(file);
}

/* One that was there, and is until then, is another. */
static void make_directory(const char *name)
{
	char path[128], made[128];

	snprintf(path, sizeof(path), "%s/%s", agent_process_kernel_files, name);
	snprintf(made, sizeof(made), "%s/made", agent_process_kernel_files);
	REQUIRE(!mkdir(made, 0755) && !rename(made, path));
}

static void remove_kernel_files(void)
{
	static const char *const names[] = { "proc/modules", "proc/kallsyms", "proc",
					     "module/alpha", "module",        "" };
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", agent_process_kernel_files, names[i]);
		CHECK(!remove(path));
	}
	agent_process_kernel_files = NULL;
}

/* Another build of it may well have as many pages and find its old place. */
TEST(guest_agent, sends_the_kernel_again_when_a_module_is_reloaded)
{
	char directory[] = "/tmp/kvmscope-test-XXXXXX";
	struct reported_kernel *reported, *again;
	struct agent_fixture fixture;

	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	if (geteuid())
		SKIP("mounting other files in place of the kernel's takes root");
	agent_process_kernel_files = mkdtemp(directory);
	REQUIRE(agent_process_kernel_files != NULL);
	make_directory("proc");
	make_directory("module");
	write_kernel_file("proc/modules", "alpha 20480 0 - Live 0xffffffffc0400000\n");
	write_kernel_file("proc/kallsyms", "ffffffff81000000 T _text\n");
	make_directory("module/alpha");
	REQUIRE(agent_fixture_set_up(&fixture, AGENT_WITH_EVENTS));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_is_answered));
	CHECK_EQUAL(agent_request_kernel(fixture.agent, 0), -EAGAIN);
	CHECK(ask(&fixture, 0));
	CHECK(agent_fixture_wait(&fixture, has_kernel));
	reported = take_reported(&fixture);
	REQUIRE(reported != NULL);
	CHECK(ask(&fixture, reported->modules_hash));
	CHECK(ask(&fixture, reported->modules_hash));
	CHECK(take_reported(&fixture) == NULL);
	make_directory("module/alpha");
	CHECK(ask(&fixture, reported->modules_hash));
	CHECK(ask(&fixture, reported->modules_hash));
	again = take_reported(&fixture);
	CHECK(again && again->modules_hash != reported->modules_hash);
	agent_fixture_tear_down(&fixture, NULL);
	reported_kernel_free(reported);
	reported_kernel_free(again);
	remove_kernel_files();
}
